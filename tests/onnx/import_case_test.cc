// Imports the graphs of tests/golden/make_onnx_cases_golden.py: constants that the import computes,
// for a fixed and for an open batch, patterns that become one layer, and files of transformers. The
// tests catch a constant with a wrong element, a batch whose samples are mixed up, and a pattern
// that stays in pieces or is recognized where it means something else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tests/onnx/import_support.h"
#include "tests/support/source_path.h"

namespace trainyard::onnx {
namespace {

const SafetensorsFile& case_file() {
  static const SafetensorsFile file =
      SafetensorsFile::open(testing::source_path("tests/golden/onnx_cases.safetensors")).value();
  return file;
}

const TensorView& case_part(const std::string& name) {
  const TensorView* view = case_file().find(name);
  TRAINYARD_CHECK(view != nullptr, name);
  return *view;
}

Result<ImportedModel> import_case(const std::string& name) {
  ASSIGN_OR_RETURN(const OnnxFile file, OnnxFile::parse(case_part(name + "/model").bytes));
  return import_model(file, {});
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const TensorView& t : case_file().tensors()) {
    if (t.name.ends_with("/model")) names.push_back(t.name.substr(0, t.name.find('/')));
  }
  return names;
}

class OnnxImportCases : public ::testing::TestWithParam<std::string> {};

TEST_P(OnnxImportCases, MatchOnnxruntime) {
  const Result<ImportedModel> model = import_case(GetParam());
  ASSERT_TRUE(model.ok()) << model.error().message;
  const TensorView& input = case_part(GetParam() + "/input");
  const std::vector<double> expected = testing::numbers_of(case_part(GetParam() + "/output"));
  const auto backends = {make_reference_backend(), make_cpu_backend(2)};
  for (const auto& backend : backends) {
    const std::vector<double> found =
        testing::run_imported(*model, input.type.shape[0], testing::numbers_of(input), *backend);
    ASSERT_EQ(found.size(), expected.size()) << layers_to_yaml(model->layers);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 1e-5 * std::max(1.0, std::fabs(expected[i])))
          << backend->name() << " [" << i << "]\n"
          << layers_to_yaml(model->layers);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, OnnxImportCases, ::testing::ValuesIn(case_names()),
                         [](const auto& instance) { return instance.param; });

int64_t layers_of(const ImportedModel& model, std::string_view op) {
  return std::ranges::count(model.layers, op, &LayerSpec::op);
}

const LayerSpec& layer_of(const ImportedModel& model, std::string_view op) {
  return *std::ranges::find(model.layers, op, &LayerSpec::op);
}

TEST(OnnxImportPatterns, AttentionIsOneLayer) {
  for (const char* name : {"attention", "attention_unscaled", "attention_causal", "attention_where",
                           "attention_scaled_before", "transformers_vit", "transformers_distilbert",
                           "transformers_bert", "transformers_llama"}) {
    const auto model = import_case(name);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(layers_of(*model, "Attention"), 1) << name << layers_to_yaml(model->layers);
    EXPECT_EQ(layers_of(*model, "Softmax") + layers_of(*model, "MatMul"), 0)
        << name << layers_to_yaml(model->layers);
  }
}

TEST(OnnxImportPatterns, AttentionKeepsItsScaleAndMask) {
  EXPECT_EQ(layer_of(*import_case("attention"), "Attention").attributes.find("scale"), nullptr);
  EXPECT_EQ(
      layer_of(*import_case("attention_unscaled"), "Attention").attributes.get_float("scale", 0),
      1);
  for (const auto& [name, is_causal] : {std::pair("attention", 0),
                                        {"attention_causal", 1},
                                        {"attention_where", 1},
                                        {"transformers_bert", 0},
                                        {"transformers_llama", 1}}) {
    const auto model = import_case(name);
    EXPECT_EQ(layer_of(*model, "Attention").attributes.get_int("is_causal", 0), is_causal) << name;
  }
}

TEST(OnnxImportPatterns, OtherMasksStayProducts) {
  for (const char* name : {"products_windowed", "products_with_bias"}) {
    const auto model = import_case(name);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(layers_of(*model, "Attention"), 0) << name;
    EXPECT_EQ(layers_of(*model, "Softmax"), 1) << name;
  }
}

TEST(OnnxImportPatterns, ScoresThatBecomeZeroAreNotMasked) {
  const std::span<const std::byte> golden = case_part("attention_where/model").bytes;
  std::vector<std::byte> bytes(golden.begin(), golden.end());
  const float low = -3.4e38f, zero = 0;
  const auto pattern = std::as_bytes(std::span(&low, 1));
  const auto found = std::ranges::search(bytes, pattern);
  ASSERT_EQ(found.size(), pattern.size());
  std::ranges::copy(std::as_bytes(std::span(&zero, 1)), found.begin());
  const auto file = OnnxFile::parse(bytes);
  ASSERT_TRUE(file.ok());
  const auto model = import_model(*file, {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(layers_of(*model, "Attention"), 0) << layers_to_yaml(model->layers);
  EXPECT_EQ(layers_of(*model, "Softmax"), 1) << layers_to_yaml(model->layers);
}

TEST(OnnxImportPatterns, RmsNormalizationIsOneLayer) {
  for (const auto& [name, count] :
       {std::pair("rms_norm", 1), {"rms_norm_by_division", 1}, {"transformers_llama", 3}}) {
    const auto model = import_case(name);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(layers_of(*model, "RMSNormalization"), count) << name;
    EXPECT_EQ(layers_of(*model, "ReduceMean"), 0) << name;
  }
}

// --- reductions over no axes ---

/// Returns the outputs of a file of these nodes for the two samples [-2, 3] and [0.5, -1].
std::vector<double> outputs_of(const std::vector<testing::FileNode>& nodes,
                               std::vector<ProtobufMessage> tensors = {}) {
  const std::string bytes = testing::model_of(nodes, std::move(tensors));
  const auto file = OnnxFile::parse(std::as_bytes(std::span(bytes)));
  const auto model = import_model(*file, {});
  EXPECT_TRUE(model.ok()) << model.error().message;
  if (!model.ok()) return {};
  return testing::run_imported(*model, 2, {-2, 3, 0.5, -1}, *make_reference_backend());
}

// ONNX: "reduction over an empty set of axes means that the reduction step behaves like a no-op,
// but composite-reduction operators will still perform the non-reduction steps as needed".
TEST(OnnxImportReductions, OverNoAxesKeepTheirOtherSteps) {
  using Numbers = std::vector<double>;
  const Numbers same = {-2, 3, 0.5, -1}, size = {2, 3, 0.5, 1}, square = {4, 9, 0.25, 1};
  for (const auto& [op, expected] : {std::pair("ReduceL1", size),
                                     {"ReduceL2", size},
                                     {"ReduceSumSquare", square},
                                     {"ReduceSum", same},
                                     {"ReduceMax", same}}) {
    EXPECT_EQ(
        outputs_of({{op, {"x"}, {"r"}, {{"noop_with_empty_axes", 1}}}, {"Identity", {"r"}, {"y"}}}),
        expected)
        << op;
  }
}

TEST(OnnxImportReductions, OverNoAxesOfAConstantKeepTheirOtherSteps) {
  const std::string raw("\0\0\x40\xc0\0\0\x80\x3f", 8);  // -3 and 1
  for (const auto& [op, first] : {std::pair("ReduceL1", 3.0),
                                  {"ReduceL2", 3.0},
                                  {"ReduceSumSquare", 9.0},
                                  {"ReduceProd", -3.0}}) {
    std::vector<ProtobufMessage> tensors;
    tensors.push_back(testing::floats("w", {2}, raw));
    EXPECT_EQ(outputs_of({{op, {"w"}, {"r"}, {{"noop_with_empty_axes", 1}, {"keepdims", 0}}},
                          {"Add", {"x", "r"}, {"y"}}},
                         std::move(tensors)),
              (std::vector<double>{-2 + first, 4, 0.5 + first, 0}))
        << op;
  }
}

// --- what is trained ---

std::string yaml_of(const std::string& name) {
  const auto model = import_case(name);
  return model.ok() ? layers_to_yaml(model->layers) : model.error().message;
}

TEST(OnnxImportBuffers, StayConstantsAndAreNamed) {
  const auto model = import_case("buffers");
  ASSERT_TRUE(model.ok()) << model.error().message;
  int64_t trained = 0, fixed = 0;
  for (const LayerSpec& layer : model->layers) {
    if (layer.op != "Parameter") continue;
    (layer.attributes.get_int("trainable", 1) != 0 ? trained : fixed) += 1;
  }
  EXPECT_EQ(trained, 1) << layers_to_yaml(model->layers);  // the positions
  EXPECT_EQ(fixed, 3) << layers_to_yaml(model->layers);    // cos, sin and mask
  ASSERT_EQ(model->notes.size(), 1u);
  for (const char* name : {"cos", "sin", "mask"}) {
    EXPECT_NE(model->notes[0].find(name), std::string::npos) << model->notes[0];
  }
}

TEST(OnnxImportBuffers, OfRotaryPositionsAreNotTrained) {
  const auto model = import_case("transformers_llama");
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const LayerSpec& layer : model->layers) {
    if (layer.op != "Parameter") continue;
    EXPECT_EQ(layer.attributes.get_int("trainable", 1), 0) << layer.name;
  }
}

TEST(OnnxImportBuffers, MasksInOtherFilesAreNotTrained) {
  EXPECT_NE(yaml_of("mask_of_batch_2").find("trainable: false"), std::string::npos)
      << yaml_of("mask_of_batch_2");
}

TEST(OnnxImportCasesOfWeights, PositionsOfEmbeddingsAreTrained) {
  EXPECT_NE(yaml_of("transformers_distilbert").find("- parameter: {shape: [8, 16]}"),
            std::string::npos)
      << yaml_of("transformers_distilbert");
}

TEST(OnnxImportCasesOfWeights, AConstantThatAConvolutionAddsIsItsBias) {
  const auto model = import_case("bias_of_a_constant_node");
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->layers.size(), 1u) << layers_to_yaml(model->layers);
  EXPECT_EQ(model->parameter_count, 4 * 27 + 4);
}

TEST(OnnxImportCasesOfWeights, RowsThatAreTakenTwiceStayOneParameter) {
  const auto model = import_case("relative_positions");
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto table = std::ranges::find_if(model->weights, [](const ImportedWeight& w) {
    return w.shape.elements() == 7 && w.name == "table.weight";
  });
  EXPECT_NE(table, model->weights.end()) << layers_to_yaml(model->layers);
}

}  // namespace
}  // namespace trainyard::onnx
