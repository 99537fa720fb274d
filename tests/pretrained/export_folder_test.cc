#include "src/pretrained/export_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <list>
#include <numeric>

#include "src/artifact/model_artifact.h"
#include "src/base/files.h"
#include "src/models/families/family.h"
#include "tests/data/temporary_folder.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

class ExportFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    info_.schema.kind = DatasetSchema::Kind::kText;
    info_.schema.text.tokenizer = TokenizerKind::kChar;
    info_.schema.text.pieces = {"a", "b", "c"};
    info_.schema.target.kind = TargetSchema::Kind::kNextToken;
    info_.schema.train_rows = 100;
    info_.preprocessing.context_length = 8;
  }

  void be_decoder() {
    info_.model.preset = "decoder";
    info_.model.parameters = Attributes({{"n_layer", int64_t{1}},
                                         {"n_embd", int64_t{8}},
                                         {"n_head", int64_t{2}},
                                         {"n_kv_head", int64_t{1}},
                                         {"hidden", int64_t{12}}});
  }
  void be_gpt2() {
    info_.model.preset = "gpt2";
    info_.model.parameters =
        Attributes({{"n_layer", int64_t{1}}, {"n_embd", int64_t{8}}, {"n_head", int64_t{2}}});
  }

  /// Writes the model's folder, each tensor with the numbers 0, 1, 2, ...
  void write() {
    const auto model =
        build_model(info_.model, info_.interface(), {.batch_size = 1, .training = false});
    ASSERT_TRUE(model.ok()) << model.error().message;
    std::list<std::vector<float>> values;
    std::vector<TensorView> views;
    for (const TensorInfo& t : model->graph.tensors()) {
      if (t.role != Role::kParameter) continue;
      values.emplace_back(static_cast<size_t>(t.type.shape.elements()));
      std::iota(values.back().begin(), values.back().end(), 0.0F);
      views.push_back({t.name, t.type, std::as_bytes(std::span(values.back()))});
    }
    const Status written = write_model(local_files(), model_folder(), info_, views);
    ASSERT_TRUE(written.ok()) << written.error().message;
  }

  Result<ExportedFolder> run(bool overwrite = false) {
    return export_language_model(local_files(), model_folder(), out(), overwrite);
  }
  fs::path model_folder() const { return directory_.path() / "model"; }
  fs::path out() const { return directory_.path() / "out"; }
  LanguageModel written_config() {
    const auto text = read_file(out() / "config.json", 1 << 20);
    EXPECT_TRUE(text.ok());
    const auto model = read_model_config(*text);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return *model;
  }

  TemporaryFolder directory_;
  ModelInfo info_;
};

TEST_F(ExportFolder, HasExactlyTheTensorsOfTheFamily) {
  be_decoder();
  write();
  const auto exported = run();
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  EXPECT_EQ(exported->family, "llama");
  EXPECT_EQ(exported->files, (std::vector<std::string>{"config.json", "model.safetensors"}));
  EXPECT_EQ(exported->warnings.size(), 1u) << "there is no tokenizer of transformers";
  const LanguageModel config = written_config();
  const auto weights = SafetensorsFile::open(out() / "model.safetensors");
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  ASSERT_EQ(weights->tensors().size(), config.tensors.size());
  for (const ExpectedTensor& t : config.tensors) {
    ASSERT_NE(weights->find(t.name), nullptr) << t.name;
    EXPECT_EQ(weights->find(t.name)->type.shape, t.shape) << t.name;
  }
  EXPECT_EQ(config.positions_max, 8);
  EXPECT_FALSE(fs::exists(directory_.path() / "out.tmp"));
}

TEST_F(ExportFolder, HasTheClassesOfAClassifier) {
  be_decoder();
  ColumnSchema column;
  column.name = "text";
  column.kind = ColumnSchema::Kind::kText;
  info_.schema.columns.push_back(column);
  info_.schema.source_columns = {"text", "label"};
  info_.schema.text.max_length = 8;
  info_.schema.target = {TargetSchema::Kind::kClass, "label", {"bad", "fair", "good"}};
  info_.preprocessing.context_length = 0;
  write();
  const auto exported = run();
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  const LanguageModel config = written_config();
  EXPECT_EQ(config.classes, 3);
  EXPECT_EQ(config.positions_max, 8);
  const auto weights = SafetensorsFile::open(out() / "model.safetensors");
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  ASSERT_NE(weights->find("score.weight"), nullptr);
  EXPECT_EQ(weights->find("score.weight")->type.shape, (Shape{3, 8}));
}

TEST_F(ExportFolder, TransposesWhatTheLibraryStoresTransposed) {
  be_gpt2();
  write();
  const auto exported = run();
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  const auto weights = SafetensorsFile::open(out() / "model.safetensors");
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const TensorView* const fc = weights->find("transformer.h.0.mlp.c_fc.weight");
  ASSERT_NE(fc, nullptr);
  ASSERT_EQ(fc->type.shape, (Shape{8, 32}));
  const auto* const numbers = reinterpret_cast<const float*>(fc->bytes.data());
  EXPECT_EQ(numbers[1], 8.0F) << "here the weight is [32, 8]";
  EXPECT_EQ(numbers[32], 1.0F);
  EXPECT_EQ(written_config().positions_max, 8);
}

TEST_F(ExportFolder, ReplacesOnlyAModelAndOnlyOnRequest) {
  be_decoder();
  write();
  ASSERT_TRUE(run().ok());
  const auto again = run();
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().reason, "FILE_EXISTS");
  EXPECT_TRUE(run(/*overwrite=*/true).ok());

  fs::remove(out() / "config.json");
  const auto other = run(/*overwrite=*/true);
  ASSERT_FALSE(other.ok()) << "a folder that is no model is not replaced";
  EXPECT_TRUE(fs::exists(out() / "model.safetensors"));
}

TEST_F(ExportFolder, RefusesAModelThatIsNoLanguageModel) {
  info_ = {};
  info_.model.preset = "mlp";
  ColumnSchema column;
  column.name = "height";
  info_.schema.columns.push_back(column);
  info_.schema.target.name = "answer";
  info_.schema.target.classes = {"no", "yes"};
  info_.schema.train_rows = 4;
  info_.preprocessing.numeric_mean = {170};
  info_.preprocessing.numeric_std = {10};
  write();
  const auto refused = run();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "EXPORT_UNSUPPORTED") << refused.error().message;
  EXPECT_NE(refused.error().message.find("mlp"), std::string::npos);
  EXPECT_FALSE(fs::exists(out()));
}

}  // namespace
}  // namespace trainyard
