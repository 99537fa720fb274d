// Catches: a spec that means something else to the engine than on the wire, and refusals that do
// not name the field as the user wrote it.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "proto/convert/data.h"
#include "proto/convert/run.h"
#include "proto/convert/spec.h"

namespace trainyard {
namespace {

v1::JobSpec parse_spec(const std::string& text) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

bool names_field(const Error& error, const std::string& field) {
  for (const FieldViolation& v : error.violations) {
    if (v.field == field) return true;
  }
  return false;
}

constexpr const char* kRecipe = "recipe { epochs: 2 optimizer { learning_rate: 0.1 } }";

TEST(ConvertSpec, PresetAndDefaults) {
  const auto spec = to_engine(parse_spec(
      std::string("model { mlp { hidden: [512, 256] activation: GELU dropout: 0.5 } }") + kRecipe));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->model.preset, "mlp");
  EXPECT_EQ(spec->model.parameters.get_ints("hidden", {}), (std::vector<int64_t>{512, 256}));
  EXPECT_EQ(spec->model.parameters.get_string("activation", ""), "gelu");
  EXPECT_EQ(spec->model.parameters.get_float("dropout", 0), 0.5);
  EXPECT_EQ(spec->recipe.batch_size, 64);
  EXPECT_EQ(spec->recipe.optimizer.type, "sgd");
  EXPECT_TRUE(spec->recipe.shuffle);
}

TEST(ConvertSpec, LayersKeepOnnxNamesAndAttributes) {
  const auto spec = to_engine(parse_spec(std::string(R"(model {
    layers { name: "c" conv { out_channels: 8 kernel_shape: [3, 3] bias: false } }
    layers { global_average_pool {} }
    layers { name: "sum" inputs: ["c", "input"] add {} }
    layers { batch_normalization { epsilon: 0.001 } } })") +
                                         kRecipe));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto& layers = spec->model.layers;
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[0].op, "Conv");
  EXPECT_EQ(layers[0].attributes.get_int("bias", 1), 0);
  EXPECT_EQ(layers[1].op, "GlobalAveragePool");
  EXPECT_EQ(layers[2].inputs, (std::vector<std::string>{"c", "input"}));
  EXPECT_EQ(layers[3].op, "BatchNormalization");
  EXPECT_EQ(layers[3].attributes.get_float("epsilon", 0), 0.001);
}

TEST(ConvertSpec, TextModels) {
  const auto spec = to_engine(parse_spec(R"(
    model { layers { lstm { hidden_size: 3 direction: "reverse" } } layers { gru { hidden_size: 2 } }
            layers { embedding_bag { embedding_dim: 4 mode: SUM } } }
    recipe { steps: 1 context_length: 12 optimizer { learning_rate: 0.1 } })"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->model.layers[0].op, "LSTM");
  EXPECT_EQ(spec->model.layers[0].attributes.get_string("direction", ""), "reverse");
  EXPECT_EQ(spec->model.layers[1].op, "GRU");
  EXPECT_EQ(spec->model.layers[2].op, "EmbeddingBag");
  EXPECT_EQ(spec->model.layers[2].attributes.get_string("mode", ""), "sum");
  EXPECT_EQ(spec->recipe.context_length, 12);
}

TEST(ConvertSpec, AdamwDecaysByDefaultAsInPyTorch) {
  const auto spec = to_engine(parse_spec(
      "model { lenet5 {} } recipe { steps: 9 optimizer { type: ADAMW learning_rate: 0.001 } }"));
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->recipe.optimizer.weight_decay, 0.01);
  EXPECT_EQ(spec->recipe.steps, 9);
}

TEST(ConvertSpec, AllProblemsAtOnceByTheirNames) {
  const auto spec = to_engine(parse_spec(R"(
    recipe { epochs: 1 steps: 1 batch_size: 0 optimizer { type: ADAM momentum: 0.9 } schedule { gamma: 0.5 } }
    resources { threads: 0 } priority: 101)"));
  ASSERT_FALSE(spec.ok());
  for (const char* field :
       {"model", "recipe", "recipe.batch_size", "recipe.optimizer.learning_rate",
        "recipe.optimizer.momentum", "recipe.schedule.gamma", "resources.threads", "priority"}) {
    EXPECT_TRUE(names_field(spec.error(), field)) << field;
  }
}

TEST(ConvertSpec, TwoArchitecturesAndEmptyLayersAreRefused) {
  EXPECT_FALSE(to_engine(parse_spec(std::string("model { lenet5 {} mlp {} }") + kRecipe)).ok());
  const auto spec =
      to_engine(parse_spec(std::string("model { layers { name: \"x\" } }") + kRecipe));
  ASSERT_FALSE(spec.ok());
  EXPECT_TRUE(names_field(spec.error(), "model.layers[0]"));
}

TEST(ConvertSpec, UnknownEnumNumbersAreRefused) {
  v1::JobSpec spec = parse_spec(std::string("model { lenet5 {} }") + kRecipe);
  spec.mutable_recipe()->mutable_optimizer()->set_type(static_cast<v1::Optimizer::Type>(77));
  EXPECT_FALSE(to_engine(spec).ok());
}

TEST(ConvertData, RolesBelongToFormats) {
  v1::DatasetSpec spec;
  spec.mutable_csv()->set_target("y");
  spec.add_sources()->set_role(v1::DatasetSource::TRAIN_IMAGES);
  const std::vector<std::filesystem::path> paths = {"/x"};
  EXPECT_FALSE(to_ingest_request(spec, paths).ok());
  spec.mutable_sources(0)->set_role(v1::DatasetSource::DATA);
  const auto request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->sources[0].role, "data");
  EXPECT_EQ(request->csv.target, "y");
}

TEST(ConvertData, TextOptionsAreReadAndUnusedOnesRefused) {
  v1::DatasetSpec spec;
  spec.add_sources()->set_role(v1::DatasetSource::DATA);
  const std::vector<std::filesystem::path> paths = {"/x"};
  spec.mutable_text()->set_test_share(0.25);
  auto request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->format, "text");
  EXPECT_EQ(request->text.tokenizer, "char");
  EXPECT_EQ(request->text.test_share, 0.25);
  spec.mutable_text()->set_tokenizer(v1::WORD);
  request = to_ingest_request(spec, paths);
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.text.tokenizer"));

  v1::CsvFormat& csv = *spec.mutable_csv();
  csv.set_target("y");
  csv.set_tokenizer(v1::BYTE);
  csv.set_vocabulary_size(5);
  csv.set_max_length(7);
  request = to_ingest_request(spec, paths);  // without a text column
  ASSERT_FALSE(request.ok());
  for (const char* field :
       {"spec.csv.tokenizer", "spec.csv.vocabulary_size", "spec.csv.max_length"}) {
    EXPECT_TRUE(names_field(request.error(), field)) << field;
  }
  csv.add_text("t");
  request = to_ingest_request(spec, paths);  // bytes have no vocabulary to choose
  ASSERT_FALSE(request.ok());
  EXPECT_TRUE(names_field(request.error(), "spec.csv.vocabulary_size"));
  csv.clear_vocabulary_size();
  request = to_ingest_request(spec, paths);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->csv.text, (std::vector<std::string>{"t"}));
  EXPECT_EQ(request->csv.tokenizer, "byte");
  EXPECT_EQ(request->csv.max_length, 7);
}

TEST(ConvertRun, ValuesThatAreNotFiniteAreMarked) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<MetricPoint> points = {
      {"train/loss", 1, 0.5}, {"train/loss", 2, std::nan("")}, {"val/mae", 2, -inf}};
  const v1::MetricBatch batch = to_proto(points);
  ASSERT_EQ(batch.series_size(), 2);
  EXPECT_EQ(batch.series(0).steps_size(), 2);
  EXPECT_EQ(batch.series(0).values(1), 0);
  ASSERT_EQ(batch.series(0).non_finite_size(), 1);
  EXPECT_EQ(batch.series(0).non_finite(0).index(), 1);
  EXPECT_EQ(batch.series(0).non_finite(0).kind(), v1::NonFinite::NOT_A_NUMBER);
  EXPECT_EQ(batch.series(1).non_finite(0).kind(), v1::NonFinite::NEGATIVE_INFINITY);
}

TEST(ConvertRun, ErrorsSurviveTheWire) {
  Error error = make_error(ErrorCode::kInvalidArgument, "DATASET_INVALID",
                           "line 3: has 2 fields, expected 3");
  error.metadata["row"] = "3";
  const Error back = to_error(to_outcome(error));
  EXPECT_EQ(back.code, error.code);
  EXPECT_EQ(back.reason, error.reason);
  EXPECT_EQ(back.message, error.message);
  EXPECT_EQ(back.metadata, error.metadata);
  v1::Outcome hostile;
  hostile.set_code(9999);
  EXPECT_EQ(to_error(hostile).code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace trainyard
