#include "tests/engine/train_support.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "kernels/math/philox.h"
#include "src/base/philox.h"

namespace trainyard::testing {

namespace {

constexpr uint64_t kDataSeed = 99;
constexpr int64_t kPixels = 64;
constexpr int64_t kColumns = 5;

double draw(const char* stream, int64_t index) {
  return math::uniform01<double>(
      math::philox_u32(kDataSeed, stream_of(stream), 0, static_cast<uint64_t>(index)));
}

void write_image_row(std::ostream& out, int64_t row) {
  const auto label = static_cast<int64_t>(draw("label", row) * 3);
  for (int64_t i = 0; i < kPixels; ++i) {
    const bool bright = i * 3 / kPixels == label;
    out << static_cast<int>((bright ? 6 : 0) + draw("pixel", row * kPixels + i) * 10) << ',';
  }
  out << "class" << label << '\n';
}

void write_number_row(std::ostream& out, int64_t row) {
  double target = 3;
  for (int64_t i = 0; i < kColumns; ++i) {
    const double x = draw("column", row * kColumns + i);
    target += x * static_cast<double>(i + 1);
    out << x << ',';
  }
  out << target + 0.1 * draw("noise", row) << '\n';
}

void write_rows(const std::filesystem::path& path, bool images, int64_t first, int64_t count) {
  std::ofstream out(path);
  for (int64_t i = 0; i < (images ? kPixels : kColumns); ++i) out << 'x' << i << ',';
  out << "y\n";
  for (int64_t row = first; row < first + count; ++row) {
    images ? write_image_row(out, row) : write_number_row(out, row);
  }
}

}  // namespace

std::filesystem::path make_dataset(const Workspace& workspace, bool images, int64_t rows,
                                   int64_t test_rows) {
  IngestRequest request;
  request.format = "csv";
  request.csv.target = "y";
  request.csv.target_kind = images ? "class" : "numeric";
  if (images) request.csv.image = {1, 8, 8};
  write_rows(workspace / "rows.csv", images, 0, rows);
  request.sources.push_back({"data", workspace / "rows.csv"});
  if (test_rows > 0) {
    write_rows(workspace / "test.csv", images, rows, test_rows);
    request.sources.push_back({"test", workspace / "test.csv"});
  }
  const auto schema = ingest(request, workspace / "dataset", local_files());
  if (!schema.ok()) ADD_FAILURE() << schema.error().message;
  return workspace / "dataset";
}

ModelSpec image_model(double dropout) {
  ModelSpec spec;
  const std::vector<int64_t> three = {3, 3};
  spec.layers = {{"",
                  "Conv",
                  {},
                  {{"out_channels", int64_t{6}}, {"kernel_shape", three}, {"pads", int64_t{1}}}},
                 {"", "BatchNormalization", {}, {}},
                 {"", "Relu", {}, {}},
                 {"", "MaxPool", {}, {{"kernel_shape", int64_t{2}}}},
                 {"", "Gemm", {}, {{"units", int64_t{16}}}},
                 {"", "Relu", {}, {}}};
  if (dropout > 0) spec.layers.push_back({"", "Dropout", {}, {{"ratio", dropout}}});
  spec.layers.push_back({"", "Gemm", {}, {}});
  return spec;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

}  // namespace trainyard::testing
