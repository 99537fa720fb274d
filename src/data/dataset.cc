#include "src/data/dataset.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/json_fields.h"
#include "src/base/sha256.h"
#include "src/checkpoint/safetensors.h"
#include "src/data/dataset_folder.h"
#include "src/data/limits.h"
#include "src/data/typed_rows.h"

namespace trainyard {
namespace {

Error damaged(const std::string& message) {
  return make_error(ErrorCode::kDataLoss, "DATASET_DAMAGED", "the stored dataset " + message);
}

/// Returns the error for a file of a complete dataset that could not be opened with the error
/// `opened`. A file that is missing or cannot be read at the moment may become readable again, so
/// file errors are returned unchanged; others mean damage.
Error unusable(const Error& opened) {
  return is_of_file_error(opened.reason) ? opened : damaged("cannot be opened: " + opened.message);
}

Result<DatasetSchema> parse_schema_file(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, "schema.json", "DATASET_DAMAGED"));
  JsonFields fields(json, "schema.json", "DATASET_DAMAGED");
  (void)fields.integer("format", kDatasetFormat, kDatasetFormat);
  (void)fields.child("options");
  (void)fields.child("sources");
  const nlohmann::json& schema = fields.child("schema");
  if (Status s = fields.finish(); !s.ok()) return std::move(s).error();
  return DatasetSchema::from_json(schema);
}

template <typename T>
bool set_span(std::span<const std::byte> bytes, std::span<const T>& out) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(T) != 0) return false;
  out = {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  return true;
}

/// Checks codes once here, since later code uses them as indices without further checks.
bool codes_in_range(const DatasetSchema& schema, const Partition& p) {
  std::vector<int32_t> counts;
  for (const ColumnSchema& c : schema.columns) {
    if (c.kind == ColumnSchema::Kind::kCategorical) {
      counts.push_back(static_cast<int32_t>(c.categories.size()));
    }
  }
  for (size_t i = 0; i < p.category.size(); ++i) {
    if (p.category[i] < -1 || p.category[i] >= counts[i % counts.size()]) return false;
  }
  const auto groups = static_cast<int32_t>(schema.split.group_rows.size());
  if (!std::ranges::all_of(p.group, [groups](int32_t g) { return g >= 0 && g < groups; })) {
    return false;
  }
  const auto vocabulary =
      static_cast<int32_t>(p.tokens.empty() ? 0 : schema.text.vocabulary_size());
  if (!std::all_of(p.tokens.begin(), p.tokens.end(),
                   [vocabulary](int32_t t) { return t >= 0 && t < vocabulary; })) {
    return false;
  }
  const auto classes = static_cast<int32_t>(schema.target.classes.size());
  return std::all_of(p.target_class.begin(), p.target_class.end(),
                     [classes](int32_t label) { return label >= 0 && label < classes; });
}

/// Checks the beginnings of documents, which later code uses without further checks, and that the
/// lengths are those by which jobs are planned.
bool documents_match(const DocumentCounts& counts, const Partition& p) {
  if (p.rows == 0) return counts.lengths.empty();
  std::map<int64_t, int64_t> lengths;
  for (size_t i = 0; i + 1 < p.starts.size(); ++i) {
    if (p.starts[i + 1] <= p.starts[i]) return false;
    ++lengths[p.starts[i + 1] - p.starts[i]];
  }
  return p.starts.front() == 0 && p.starts.back() == std::ssize(p.tokens) &&
         lengths == counts.lengths;
}

}  // namespace

Result<DatasetSchema> read_schema(const std::filesystem::path& folder) {
  ASSIGN_OR_RETURN(const std::string text, read_file(folder / "schema.json", kSchemaBytesMax));
  Result<DatasetSchema> schema = parse_schema_file(text);
  if (!schema.ok()) return damaged("has no valid schema: " + schema.error().message);
  return schema;
}

Result<Dataset> Dataset::open(const std::filesystem::path& folder, bool verify_digest) {
  const Result<std::string> digest = read_file(folder / "digest", 1024);
  if (!digest.ok()) {
    if (digest.error().code != ErrorCode::kNotFound) return digest.error();
    return make_error(ErrorCode::kNotFound, "DATASET_NOT_FOUND",
                      "there is no complete dataset in " + folder.string());
  }
  const Result<std::string> schema_text = read_file(folder / "schema.json", kSchemaBytesMax);
  if (!schema_text.ok()) return unusable(schema_text.error());
  Result<SafetensorsFile> data = SafetensorsFile::open(folder / "data.safetensors");
  if (!data.ok()) return unusable(data.error());
  if (verify_digest) {
    Sha256 sha;
    sha.update(data->file_bytes());
    if (*digest != digest_text(sha256_hex(*schema_text), sha.finish())) {
      return damaged("does not match its digest; delete it and ingest it again");
    }
  }
  Result<DatasetSchema> schema = parse_schema_file(*schema_text);
  if (!schema.ok()) return damaged("has no valid schema: " + schema.error().message);

  Dataset dataset;
  dataset.schema_ = *std::move(schema);
  dataset.train_.rows = dataset.schema_.train_rows;
  dataset.test_.rows = dataset.schema_.test_rows;
  size_t expected = 0;
  std::string wrong;
  const auto take = [&](const std::string& name, const TensorType& type, auto& span) {
    ++expected;
    const TensorView* t = data->find(name);
    if (t == nullptr || t->type != type || !set_span(t->bytes, span)) wrong = name;
  };
  visit_arrays(dataset.schema_, "train", dataset.train_, take);
  visit_arrays(dataset.schema_, "test", dataset.test_, take);
  if (!wrong.empty()) return damaged("has no array " + wrong + " of the schema's type");
  if (expected != data->tensors().size()) return damaged("has arrays that its schema lacks");
  if (dataset.train_.rows == 0) return damaged("has no rows");
  if (!codes_in_range(dataset.schema_, dataset.train_) ||
      !codes_in_range(dataset.schema_, dataset.test_)) {
    return damaged("has labels, categories or tokens out of range");
  }
  if (dataset.schema_.documents &&
      (!documents_match(dataset.schema_.documents->train, dataset.train_) ||
       !documents_match(dataset.schema_.documents->test, dataset.test_))) {
    return damaged("has documents that its schema lacks");
  }
  dataset.data_ = *std::move(data);
  return dataset;
}

void Dataset::pack(std::shared_ptr<const PackedRows> train,
                   std::shared_ptr<const PackedRows> test) {
  packed_train_ = std::move(train);
  packed_test_ = std::move(test);
  train_.packed = packed_train_.get();
  test_.packed = packed_test_.get();
}

}  // namespace trainyard
