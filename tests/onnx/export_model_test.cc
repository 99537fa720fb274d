// Tests of the export of a model folder to a file: the file is complete or absent, and refusals
// state the reason. tests/e2e/test_onnx.py checks the results of ONNX runtimes.
#include "src/onnx/export_model.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "src/artifact/model_artifact.h"
#include "src/models/model_spec.h"
#include "src/onnx/import_model.h"

namespace trainyard::onnx {
namespace {

namespace fs = std::filesystem;

/// Writes the file correctly, but then reports a full disk.
class FullDisk final : public Files {
 public:
  Status write_file(const fs::path& path,
                    std::span<const std::span<const std::byte>> parts) override {
    (void)local_files().write_file(path, parts);
    return make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL", "no space is left");
  }
  Result<std::unique_ptr<FileFiller>> create_file(const fs::path&, int64_t) override {
    return make_error(ErrorCode::kResourceExhausted, "STORAGE_FULL", "no space is left");
  }
  Status rename_durable(const fs::path& from, const fs::path& to) override {
    return local_files().rename_durable(from, to);
  }
  Status sync_directory(const fs::path& directory) override {
    return local_files().sync_directory(directory);
  }
  Status create_directories(const fs::path& directory) override {
    return local_files().create_directories(directory);
  }
  Status link_file(const fs::path& from, const fs::path& to) override {
    return local_files().link_file(from, to);
  }
  Status remove_all(const fs::path& path) override { return local_files().remove_all(path); }
};

class OnnxExport : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "trainyard-onnx-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    info_.model.preset = "mlp";
    info_.model.parameters.set("hidden", std::vector<int64_t>{3});
    for (const char* name : {"height", "weight"}) {
      ColumnSchema column;
      column.name = name;
      info_.schema.columns.push_back(std::move(column));
    }
    info_.schema.target.name = "answer";
    info_.schema.target.classes = {"no", "yes"};
    info_.schema.train_rows = 4;
    info_.preprocessing.numeric_mean = {170, 70};
    info_.preprocessing.numeric_std = {10, 15};
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Writes the model's folder with weights of 0.5, without the weight named `without`.
  void write(const std::string& without = "") {
    const auto model =
        build_model(info_.model, info_.schema.interface(), {.batch_size = 2, .training = false});
    ASSERT_TRUE(model.ok()) << model.error().message;
    std::vector<std::vector<float>> values;
    std::vector<TensorView> views;
    for (const TensorInfo& t : model->graph.tensors()) {
      if (t.role != Role::kParameter || t.name == without) continue;
      values.emplace_back(static_cast<size_t>(t.type.shape.elements()), 0.5f);
      views.push_back({t.name, t.type, std::as_bytes(std::span(values.back()))});
    }
    const Status written = write_model(local_files(), folder_ / "model", info_, views);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }

  Result<int64_t> run(Files& files = local_files()) {
    return export_model(files, folder_ / "model", file());
  }
  fs::path file() const { return folder_ / "model.onnx"; }

  /// Expects the model's folder to be the only entry.
  void expect_nothing_left() {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_EQ(entry.path().filename(), "model");
    }
  }
  void expect_refusal(const Result<int64_t>& result, const std::string& reason,
                      const std::string& word) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().reason, reason) << result.error().message;
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  }

  fs::path folder_;
  ModelInfo info_;
};

TEST_F(OnnxExport, WritesWeightsUnderTheirNames) {
  write();
  const auto size = run();
  ASSERT_TRUE(size.ok()) << size.error().message;
  std::ifstream in(file(), std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), *size);
  const auto model = build_model(info_.model, info_.schema.interface(), {.training = false});
  for (const TensorInfo& t : model->graph.tensors()) {
    if (t.role != Role::kParameter) continue;
    EXPECT_NE(bytes.find(t.name), std::string::npos) << t.name;
  }
  EXPECT_NE(bytes.find(R"(["no","yes"])"), std::string::npos);
  EXPECT_FALSE(fs::exists(file().string() + ".tmp"));
}

// An exported file imports as the same layers with the same names; the import ignores the file's
// preprocessing.
TEST_F(OnnxExport, RoundTripsToTheSameLayers) {
  write();
  ASSERT_TRUE(run().ok());
  const auto model = import_model(file(), ImportOptions{});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(layers_to_yaml(model->layers),
            "layers:\n  - gemm: {units: 3}\n    name: fc1\n  - relu:\n    name: relu1\n"
            "  - gemm: {units: 2}\n    name: fc2\n");
  std::vector<std::string> names;
  for (const ImportedWeight& w : model->weights) {
    names.push_back(w.name);
    for (const float x : w.values) EXPECT_EQ(x, 0.5f) << w.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"}));
  EXPECT_EQ(model->input_shape, Shape({2}));
}

TEST_F(OnnxExport, NeverReplacesAFile) {
  write();
  std::ofstream(file()) << "somebody's";
  expect_refusal(run(), "FILE_EXISTS", "model.onnx");
  std::ifstream in(file());
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(in)), {}), "somebody's");
}

TEST_F(OnnxExport, RefusesAMissingFolder) {
  write();
  expect_refusal(export_model(local_files(), folder_ / "model", folder_ / "away" / "m.onnx"),
                 "FILE_NOT_FOUND", "away");
  expect_refusal(export_model(local_files(), folder_ / "other", file()), "FILE_NOT_FOUND", "other");
  expect_nothing_left();
}

TEST_F(OnnxExport, LeavesNothingOnFailure) {
  write(/*without=*/"fc1.weight");
  const auto refused = run();
  EXPECT_FALSE(refused.ok());
  expect_nothing_left();
  write();
  FullDisk disk;
  expect_refusal(run(disk), "STORAGE_FULL", "space");
  expect_nothing_left();
}

}  // namespace
}  // namespace trainyard::onnx
