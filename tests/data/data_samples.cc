#include "tests/data/data_samples.h"

#include <zlib.h>

#include <bit>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "src/base/json_fields.h"
#include "tests/data/unsynced_files.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

Result<Dataset> ingest_and_open(const IngestRequest& request, const std::filesystem::path& folder) {
  UnsyncedFiles files;
  const Result<DatasetSchema> schema = ingest(request, folder, files);
  if (!schema.ok()) {
    // A refused ingest must leave nothing behind.
    for (const char* suffix : {"", ".tmp"}) {
      TRAINYARD_CHECK(!std::filesystem::exists(folder.string() + suffix), "something was left");
    }
    return schema.error();
  }
  return Dataset::open(folder, true);
}

}  // namespace

std::string gzip(std::string_view text) {
  z_stream stream{};
  TRAINYARD_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
                  "deflateInit2");
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  std::string in(text);
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  TRAINYARD_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string from_base64(const std::string& text) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(alphabet.find(c));
    count += 6;
    if (count >= 8) out += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  return out;
}

std::string idx_file(unsigned type, const std::vector<uint32_t>& sizes, std::string_view elements) {
  std::string file = {'\0', '\0', static_cast<char>(type), static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(size >> shift & 0xff);
  }
  return file + std::string(elements);
}

std::string idx_floats(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    const auto u = std::bit_cast<uint32_t>(value);
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(u >> shift & 0xff);
  }
  return bytes;
}

std::string schema_text(const DatasetSchema& schema) { return schema.to_json().dump(); }

Result<DatasetSchema> parse_schema(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, "schema", "DATASET_INVALID"));
  return DatasetSchema::from_json(json);
}

CsvOptions csv_options(std::string target) {
  CsvOptions options;
  options.target = std::move(target);
  return options;
}

IngestedCsv::IngestedCsv(const CsvOptions& options, std::string_view train,
                         std::optional<std::string_view> test)
    : dataset_(Error{}) {
  IngestRequest request{"csv", {{"data", folder_.write("train.csv", train)}}, options};
  if (test) request.sources.push_back({"test", folder_.write("test.csv", *test)});
  dataset_ = ingest_and_open(request, folder_ / "typed");
}

IngestedText::IngestedText(std::string_view train, const TextOptions& options,
                           std::optional<std::string_view> test)
    : dataset_(Error{}) {
  IngestRequest request{"text", {{"data", folder_.write("train.txt", train)}}, {}, options};
  if (test) request.sources.push_back({"test", folder_.write("test.txt", *test)});
  dataset_ = ingest_and_open(request, folder_ / "typed");
}

IngestedIdx::IngestedIdx(std::string_view train_images, std::string_view train_labels,
                         std::string_view test_images, std::string_view test_labels)
    : dataset_(Error{}) {
  IngestRequest request{"idx",
                        {{"train_images", folder_.write("a", train_images)},
                         {"train_labels", folder_.write("b", train_labels)}},
                        {}};
  if (!test_images.empty()) {
    request.sources.push_back({"test_images", folder_.write("c", test_images)});
    request.sources.push_back({"test_labels", folder_.write("d", test_labels)});
  }
  dataset_ = ingest_and_open(request, folder_ / "typed");
}

IngestedFiles::IngestedFiles(IngestRequest request,
                             const std::vector<std::pair<std::string, std::string>>& sources)
    : dataset_(Error{}) {
  for (const auto& [role, bytes] : sources) {
    request.sources.push_back({role, folder_.write(role, bytes)});
  }
  dataset_ = ingest_and_open(request, folder_ / "typed");
}

std::optional<std::filesystem::path> real_data_folder() {
  const char* variable = std::getenv("TRAINYARD_TEST_DATA");
  const std::filesystem::path folder =
      variable != nullptr ? std::filesystem::path(variable)
                          : std::filesystem::path(testing::source_path("../shared/data"));
  if (!std::filesystem::is_directory(folder)) return std::nullopt;
  return folder;
}

}  // namespace trainyard
