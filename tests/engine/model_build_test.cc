// Layer lists become the graphs that PyTorch would build; invalid lists are refused with the name
// of the layer. A wrong tensor name would break every saved model, a wrong count the memory plan.
#include <gtest/gtest.h>

#include <cmath>

#include "src/models/model_json.h"
#include "src/models/model_spec.h"
#include "tests/engine/model_support.h"

namespace trainyard {
namespace {

using testing::layer;
using testing::layers;
using testing::preset;
using testing::tensor;

const ModelInterface kDigits28{{1, 28, 28}, 0, TargetForm::kClass, 10};
const ModelInterface kDigits8{{1, 8, 8}, 0, TargetForm::kClass, 10};

int64_t count(const Graph& graph, Role role) {
  int64_t n = 0;
  for (const TensorInfo& t : graph.tensors()) n += t.role == role ? t.type.shape.elements() : 0;
  return n;
}

Error digits_refusal(const ModelSpec& spec, const ModelInterface& interface = kDigits28) {
  return testing::refusal(spec, interface);
}

TEST(ModelBuild, MlpHasTheKnownParameterCount) {
  const ModelSpec spec = preset("mlp", {{"hidden", std::vector<int64_t>{512, 512}}});
  const Model model = build_model(spec, kDigits28, {.batch_size = 64}).value();
  EXPECT_EQ(count(model.graph, Role::kParameter), 669706);
  EXPECT_EQ(model.graph.tensor(model.output).type.shape, (Shape{64, 10}));
  EXPECT_EQ(model.graph.tensor(model.loss).type.shape, (Shape{1}));
  EXPECT_EQ(tensor(model, "fc1.weight").type.shape, (Shape{512, 784}));
  EXPECT_EQ(tensor(model, "fc3.bias").type.shape, (Shape{10}));
  model.graph.verify();
}

TEST(ModelBuild, LeNetHasTheKnownParameterCount) {
  const Model model = build_model(preset("lenet5"), kDigits28, {.batch_size = 2}).value();
  EXPECT_EQ(count(model.graph, Role::kParameter), 431080);
  EXPECT_EQ(tensor(model, "conv2.weight").type.shape, (Shape{50, 20, 5, 5}));
}

TEST(ModelBuild, LeNetTakesSmallImagesWithPaddedConvolutions) {
  const Model model = build_model(preset("lenet5"), kDigits8, {.batch_size = 2}).value();
  EXPECT_EQ(tensor(model, "conv1.weight").type.shape, (Shape{20, 1, 3, 3}));
  EXPECT_EQ(tensor(model, "conv1").type.shape, (Shape{2, 20, 8, 8}));
  EXPECT_EQ(tensor(model, "fc1.weight").type.shape, (Shape{500, 200}));
  EXPECT_NE(digits_refusal(preset("lenet5"), {{1, 7, 8}, 0, TargetForm::kClass, 10})
                .message.find("at least 8x8"),
            std::string::npos);
  EXPECT_NE(digits_refusal(preset("lenet5"), {{64}, 0, TargetForm::kClass, 10})
                .message.find("use model.mlp"),
            std::string::npos);
}

TEST(ModelBuild, PresetEqualsItsWrittenOutLayers) {
  for (const auto& [activation, op] : {std::pair{"gelu", "Gelu"}, std::pair{"swish", "Swish"}}) {
    const ModelSpec spec = preset("mlp", {{"hidden", std::vector<int64_t>{20}},
                                          {"activation", std::string(activation)},
                                          {"dropout", 0.25}});
    const auto expanded = expand_preset(spec, kDigits28).value();
    const Model a = build_model(spec, kDigits28, {.batch_size = 3}).value();
    const Model b = build_model(layers(expanded), kDigits28, {.batch_size = 3}).value();
    EXPECT_EQ(a.graph.dump(), b.graph.dump());
    EXPECT_NE(a.graph.dump().find("Dropout"), std::string::npos);
    EXPECT_NE(a.graph.dump().find(op), std::string::npos);
  }
}

// The gradient of a max pool needs one byte a window, the winner's index, if the window has few
// enough cells for that.
TEST(ModelBuild, TrainingKeepsTheWinnersOfPools) {
  const auto winner = [](int64_t kernel, bool training) {
    const ModelSpec spec = layers({layer("MaxPool", {{"kernel_shape", kernel}}), layer("Gemm")});
    const Model model =
        build_model(spec, kDigits28, {.batch_size = 2, .training = training}).value();
    const auto id = model.graph.find_tensor("max_pool1.winner");
    return id.has_value() ? model.graph.tensor(*id).type.dtype : DType::kF32;
  };
  EXPECT_EQ(winner(2, true), DType::kU8);
  EXPECT_EQ(winner(16, true), DType::kU8);
  EXPECT_EQ(winner(17, true), DType::kF32) << "none";
  EXPECT_EQ(winner(2, false), DType::kF32) << "none";
}

TEST(ModelBuild, GlobalMaxPoolKeepsTheLargestPixelOfEachChannel) {
  const ModelInterface images{{3, 5, 7}, 0, TargetForm::kClass, 4};
  const Model model =
      build_model(layers({layer("GlobalMaxPool"), layer("Gemm")}), images, {.batch_size = 2})
          .value();
  EXPECT_EQ(tensor(model, "global_max_pool1").type.shape, (Shape{2, 3, 1, 1}));
  EXPECT_EQ(tensor(model, "gemm1.weight").type.shape, (Shape{4, 3}));
  EXPECT_NE(digits_refusal(layers({layer("GlobalMaxPool"), layer("Gemm")}),
                           {{64}, 0, TargetForm::kClass, 10})
                .message.find("image"),
            std::string::npos);
}

TEST(ModelBuild, InitialDistributionsAreThoseOfPyTorch) {
  const Model model =
      build_model(
          layers({layer("Conv", {{"out_channels", int64_t{6}}, {"kernel_shape", int64_t{5}}}),
                  layer("BatchNormalization"), layer("Gemm")}),
          {{3, 12, 12}, 0, TargetForm::kClass, 4}, {.batch_size = 2})
          .value();
  const Initializer conv = tensor(model, "conv1.weight").initializer;
  EXPECT_EQ(conv.kind, Initializer::Kind::kUniform);
  EXPECT_DOUBLE_EQ(conv.b, 1 / std::sqrt(75.0));
  EXPECT_DOUBLE_EQ(tensor(model, "conv1.bias").initializer.a, -1 / std::sqrt(75.0));
  EXPECT_DOUBLE_EQ(tensor(model, "gemm1.bias").initializer.b, 1 / std::sqrt(6.0 * 8 * 8));
  EXPECT_EQ(tensor(model, "batch_normalization1.weight").initializer.a, 1);
  EXPECT_EQ(tensor(model, "batch_normalization1.bias").initializer.a, 0);
  EXPECT_EQ(tensor(model, "batch_normalization1.running_mean").role, Role::kState);
  EXPECT_EQ(tensor(model, "batch_normalization1.running_var").initializer.a, 1);
}

TEST(ModelBuild, BranchesJoinByName) {
  const Model model = build_model(layers({layer("Gemm", {{"units", int64_t{8}}}, "a", {"input"}),
                                          layer("Gemm", {{"units", int64_t{8}}}, "b", {"input"}),
                                          layer("Relu", {}, "c"),
                                          layer("Add", {}, "sum", {"a", "c"}), layer("Gemm")}),
                                  {{5}, 0, TargetForm::kClass, 3}, {.batch_size = 2})
                          .value();
  EXPECT_EQ(tensor(model, "sum").type.shape, (Shape{2, 8}));
  EXPECT_EQ(tensor(model, "gemm1.weight").type.shape, (Shape{3, 8}));
}

TEST(ModelBuild, EvaluationOmitsDropoutAndLoss) {
  const ModelSpec spec = preset("mlp", {{"hidden", int64_t{4}}, {"dropout", 0.5}});
  const Model model = build_model(spec, kDigits28, {.batch_size = 2, .training = false}).value();
  EXPECT_EQ(model.graph.dump().find("Dropout"), std::string::npos);
  EXPECT_EQ(model.loss, kNoTensor);
  EXPECT_EQ(model.step, kNoTensor);
}

TEST(ModelBuild, ReshapeInfersOneSize) {
  const Model model =
      build_model(layers({layer("Reshape", {{"shape", std::vector<int64_t>{1, 4, -1}}}),
                          layer("Conv", {{"out_channels", int64_t{2}},
                                         {"kernel_shape", int64_t{3}},
                                         {"pads", int64_t{1}}}),
                          layer("Gemm")}),
                  {{24}, 0, TargetForm::kClass, 2}, {.batch_size = 5})
          .value();
  EXPECT_EQ(tensor(model, "conv1").type.shape, (Shape{5, 2, 4, 6}));
  const Error e = digits_refusal(
      layers({layer("Reshape", {{"shape", std::vector<int64_t>{5, -1}}}), layer("Gemm")}),
      {{24}, 0, TargetForm::kClass, 2});
  EXPECT_NE(e.message.find("model.layers[0] 'reshape1': shape: [5, -1] does not hold the 24"),
            std::string::npos)
      << e.message;
}

TEST(ModelRefusals, AreReportedTogetherWithNearestNames) {
  const Error e = digits_refusal(layers({layer("Conv", {{"out_chanels", int64_t{3}},
                                                        {"kernel_shape", int64_t{3}},
                                                        {"strides", std::vector<int64_t>{0, 1}}}),
                                         layer("Rleu"), layer("Dropout", {{"ratio", 1.0}}),
                                         layer("Gemm", {{"units", std::string("ten")}})}));
  ASSERT_EQ(e.violations.size(), 6u) << e.message;
  EXPECT_EQ(e.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(e.reason, "FIELD_UNKNOWN");
  EXPECT_EQ(e.violations[0].field, "model.layers[0].conv.out_chanels");
  EXPECT_NE(e.violations[0].description.find("did you mean 'out_channels'?"), std::string::npos);
  EXPECT_EQ(e.violations[1].field, "model.layers[0].conv.strides");
  EXPECT_EQ(e.violations[1].description, "0 is out of range, expected 1..1024");
  EXPECT_EQ(e.violations[2].field, "model.layers[0].conv.out_channels");  // a required field
  EXPECT_EQ(e.violations[3].field, "model.layers[1].op");
  EXPECT_NE(e.violations[3].description.find("did you mean 'Relu'?"), std::string::npos);
  EXPECT_EQ(e.violations[4].description, "1 is out of range, expected [0, 1)");
  EXPECT_EQ(e.violations[5].description, "has the wrong type, expected a whole number");
  EXPECT_NE(e.message.find("model.layers[0] 'conv1': out_chanels"), std::string::npos);
  EXPECT_NE(e.message.find("(and 5 more problems)"), std::string::npos) << e.message;
}

TEST(ModelRefusals, NameTheLayerWhoseShapeDoesNotFit) {
  const Error e = digits_refusal(
      layers({layer("Gemm", {{"units", int64_t{16}}}),
              layer("Conv", {{"out_channels", int64_t{4}}, {"kernel_shape", int64_t{3}}}),
              layer("Gemm")}));
  EXPECT_EQ(e.message,
            "model.layers[1] 'conv1': needs images [N, C, H, W], but its input is [4, 16]");
  const Error window = digits_refusal(
      layers({layer("Conv", {{"out_channels", int64_t{4}}, {"kernel_shape", int64_t{29}}}, "wide"),
              layer("Gemm")}));
  EXPECT_TRUE(window.message.starts_with("model.layers[0] 'wide': ")) << window.message;
  EXPECT_EQ(window.message.find("wide: "), std::string::npos) << window.message;
  ASSERT_EQ(window.violations.size(), 1u);
  EXPECT_TRUE(window.violations[0].field.starts_with("model.layers[0]"));
}

TEST(ModelRefusals, OutputMustMatchTheTarget) {
  const Error units = digits_refusal(layers({layer("Gemm", {{"units", int64_t{11}}})}));
  EXPECT_NE(units.message.find("'gemm1': its output is [4, 11], but the dataset needs [N, 10]"),
            std::string::npos)
      << units.message;
  const Error relu = digits_refusal(layers({layer("Gemm"), layer("Relu")}));
  EXPECT_NE(relu.message.find("model.layers[0] 'gemm1': units: is required"), std::string::npos)
      << relu.message;
  EXPECT_EQ(relu.violations[0].field, "model.layers[0].gemm.units");
}

TEST(ModelRefusals, WiringProblemsAreNamed) {
  const Attributes units{{"units", int64_t{4}}};
  const Error twice = digits_refusal(layers({layer("Gemm", units, "a"), layer("Gemm", {}, "a")}));
  EXPECT_EQ(twice.reason, "FIELD_DUPLICATE");
  const Error unknown =
      digits_refusal(layers({layer("Gemm", units, "dense"), layer("Gemm", {}, "out", {"dense_"})}));
  EXPECT_NE(unknown.message.find("did you mean 'dense'?"), std::string::npos) << unknown.message;
  const Error later =
      digits_refusal(layers({layer("Gemm", units, "a", {"b"}), layer("Gemm", {}, "b")}));
  EXPECT_NE(later.message.find("'b' comes later"), std::string::npos) << later.message;
  const Error self = digits_refusal(layers({layer("Gemm", {}, "a", {"a"})}));
  EXPECT_NE(self.message.find("the layer itself"), std::string::npos) << self.message;
  const Error unused =
      digits_refusal(layers({layer("Gemm", units, "a"), layer("Gemm", {}, "b", {"input"})}));
  EXPECT_EQ(unused.reason, "LAYER_UNUSED");
  EXPECT_TRUE(unused.message.starts_with("model.layers[0] 'a': nothing reads it"));
  const Error one =
      digits_refusal(layers({layer("Gemm", units, "a"), layer("Add"), layer("Gemm")}));
  EXPECT_NE(one.message.find("names 1, but Add takes 2"), std::string::npos) << one.message;
  EXPECT_EQ(digits_refusal(layers({layer("Gemm", {}, "input")})).reason, "NAME_RESERVED");
  EXPECT_EQ(digits_refusal(layers({layer("Gemm", {}, "Bad name\n")})).reason, "NAME_MALFORMED");
  EXPECT_EQ(digits_refusal(layers({})).reason, "FIELD_REQUIRED");
}

TEST(ModelRefusals, LossMustFitTheTarget) {
  ModelSpec spec = preset("mlp");
  spec.loss.op = "MeanSquaredError";
  EXPECT_EQ(digits_refusal(spec).violations[0].field, "model.loss");
  EXPECT_TRUE(build_model(spec, {{4}, 0, TargetForm::kNumeric, 1}, {}).ok());
  EXPECT_EQ(digits_refusal(preset("mpl")).violations[0].field, "model");
  EXPECT_EQ(digits_refusal(preset("mlp", {{"hiden", int64_t{3}}})).violations[0].field,
            "model.mlp.hiden");
}

TEST(ModelRefusals, HugeModelsAreRefusedNotOverflowed) {
  const Attributes wide{{"units", int64_t{1048576}}};
  const Error e = digits_refusal(
      layers({layer("Gemm", wide), layer("Gemm", wide), layer("Gemm", wide), layer("Gemm")}),
      {{2000000}, 0, TargetForm::kClass, 10});
  EXPECT_NE(e.message.find("model.layers[0] 'gemm1'"), std::string::npos) << e.message;
}

// Values that a job neither initializes nor trains are state: saved with the model, and never
// updated.
TEST(ModelBuild, AParameterThatIsNotTrainableIsState) {
  const auto role_of = [](int64_t trainable) {
    const Attributes a{{"shape", std::vector<int64_t>{4}}, {"trainable", trainable}};
    const ModelSpec spec =
        layers({layer("Gemm", {{"units", int64_t{4}}}, "fc"), layer("Parameter", a, "shift"),
                layer("Add", {}, "sum", {"fc", "shift"}), layer("Gemm")});
    const Model model =
        build_model(spec, {{4}, 0, TargetForm::kClass, 3}, {.batch_size = 2}).value();
    return model.graph.tensor(*model.graph.find_tensor("shift.weight")).role;
  };
  EXPECT_EQ(role_of(1), Role::kParameter);
  EXPECT_EQ(role_of(0), Role::kState);
}

// A tensor without a batch dimension gets none when it is reshaped, whatever the job's batch size.
TEST(ModelBuild, AReshapedParameterIsTheSameForEverySample) {
  const ModelSpec spec =
      layers({layer("Parameter", {{"shape", std::vector<int64_t>{6}}}, "table"),
              layer("Reshape", {{"shape", std::vector<int64_t>{2, 3}}}, "rows", {"table"}),
              layer("Reshape", {{"shape", std::vector<int64_t>{2, 3}}}, "x", {"input"}),
              layer("Mul", {}, "product", {"x", "rows"}), layer("Gemm")});
  const Model model = build_model(spec, {{6}, 0, TargetForm::kClass, 3}, {.batch_size = 3}).value();
  EXPECT_EQ(model.graph.tensor(*model.graph.find_tensor("rows")).type.shape, Shape({1, 2, 3}));
}

TEST(ModelJson, KeepsTypesAndBuildsTheSameGraph) {
  ModelSpec spec = layers(
      {layer("Conv", {{"out_channels", int64_t{6}}, {"kernel_shape", std::vector<int64_t>{3, 3}}},
             "c"),
       layer("BatchNormalization", {{"epsilon", 1.0}}),
       layer("Gelu", {{"approximate", std::string("tanh")}}, "", {"c"}), layer("Gemm")});
  spec.loss.op = "SoftmaxCrossEntropyLoss";
  const std::string text = model_to_json(spec);
  const ModelSpec read = model_from_json(text).value();
  EXPECT_EQ(model_to_json(read), text);
  EXPECT_EQ(read.layers[1].attributes, spec.layers[1].attributes);  // 1.0 stays a real number
  EXPECT_EQ(read.layers[2].inputs, spec.layers[2].inputs);
  EXPECT_EQ(model_from_json("{\"layers\":[{\"op\":3}]}").error().reason, "MODEL_FILE_INVALID");
  EXPECT_EQ(model_from_json("[").error().reason, "MODEL_FILE_INVALID");
}

}  // namespace
}  // namespace trainyard
