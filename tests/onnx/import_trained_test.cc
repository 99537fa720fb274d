// Tests of files that name their trained parameters: exactly these are trained. The tests catch a
// constant that is trained, a parameter that is evaluated like a constant, and a parameter that
// would be trained twice. client/python/tests/test_torch_random.py trains such files and compares
// with PyTorch.
#include <gtest/gtest.h>

#include <cstring>

#include "src/base/glob.h"
#include "src/onnx/trained_parameters.h"
#include "tests/onnx/import_support.h"

namespace trainyard::onnx {
namespace {

using testing::FileNode;
using testing::floats;

ProtobufMessage numbers(const std::string& name, const std::vector<int64_t>& dims,
                        const std::vector<float>& values) {
  std::string raw(values.size() * sizeof(float), '\0');
  std::memcpy(raw.data(), values.data(), raw.size());
  return floats(name, dims, raw);
}

/// `trained` is the JSON list in the file's metadata.
Result<ImportedModel> import_nodes(const std::vector<FileNode>& nodes,
                                   std::vector<ProtobufMessage> tensors,
                                   const std::string& trained) {
  const std::string bytes =
      testing::model_of(nodes, std::move(tensors), "y", {{kTrainedParametersKey, trained}});
  ASSIGN_OR_RETURN(const OnnxFile file, OnnxFile::parse(std::as_bytes(std::span(bytes))));
  return import_model(file, {});
}

std::vector<ProtobufMessage> list(ProtobufMessage a) {
  std::vector<ProtobufMessage> all;
  all.push_back(std::move(a));
  return all;
}

std::vector<ProtobufMessage> list(ProtobufMessage a, ProtobufMessage b) {
  std::vector<ProtobufMessage> all = list(std::move(a));
  all.push_back(std::move(b));
  return all;
}

std::string yaml_of(const Result<ImportedModel>& model) {
  return model.ok() ? layers_to_yaml(model->layers) : model.error().message;
}

#define EXPECT_REPORTS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

TEST(OnnxTrainedParameters, TrainOnlyTheNamedOnes) {
  const std::vector<FileNode> nodes = {{"Mul", {"x", "w"}, {"y"}}};
  const auto trained = import_nodes(nodes, list(numbers("w", {2}, {1, 2})), R"(["w"])");
  EXPECT_REPORTS(yaml_of(trained), "parameter: {shape: [2]}");
  const auto fixed = import_nodes(nodes, list(numbers("w", {2}, {1, 2})), "[]");
  EXPECT_REPORTS(yaml_of(fixed), "trainable: false");
  ASSERT_TRUE(trained.ok() && fixed.ok());
  EXPECT_EQ(trained->parameter_count, 2);
  EXPECT_EQ(fixed->parameter_count, 0);
}

TEST(OnnxTrainedParameters, MayBeASingleNumber) {
  const auto model =
      import_nodes({{"Mul", {"x", "gain"}, {"y"}}}, list(numbers("gain", {}, {1})), R"(["gain"])");
  EXPECT_REPORTS(yaml_of(model), "parameter: {shape: [1]}");
}

TEST(OnnxTrainedParameters, AreNotFoldedIntoConstants) {
  const std::vector<FileNode> nodes = {{"Exp", {"w"}, {"e"}}, {"Mul", {"x", "e"}, {"y"}}};
  const auto trained = import_nodes(nodes, list(numbers("w", {2}, {1, 2})), R"(["w"])");
  EXPECT_REPORTS(yaml_of(trained), "- exp:");
  const auto fixed = import_nodes(nodes, list(numbers("w", {2}, {1, 2})), "[]");
  EXPECT_EQ(yaml_of(fixed).find("- exp:"), std::string::npos) << yaml_of(fixed);
}

TEST(OnnxTrainedParameters, OfOtherNodesAreFrozen) {
  std::vector<ProtobufMessage> tensors =
      list(numbers("ln.weight", {2}, {1, 1}), numbers("ln.bias", {2}, {0.5f, 0}));
  const std::vector<FileNode> nodes = {
      {"LayerNormalization", {"x", "ln.weight", "ln.bias"}, {"y"}}};
  const auto one = import_nodes(nodes, std::move(tensors), R"(["ln.bias"])");
  ASSERT_TRUE(one.ok()) << one.error().message;
  ASSERT_EQ(one->freezes.size(), 1u);
  EXPECT_EQ(one->freezes[0].match, "ln.weight");
  EXPECT_TRUE(one->freezes[0].freeze);
  // A bias of constant zeros becomes no bias.
  tensors = list(numbers("ln.weight", {2}, {1, 1}), numbers("ln.bias", {2}, {0, 0}));
  const auto none = import_nodes(nodes, std::move(tensors), R"(["ln.weight"])");
  EXPECT_REPORTS(yaml_of(none), "bias: false");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->freezes.empty());
}

// PyTorch's exporter writes torch.arange() as floats that CastLike converts to integers.
TEST(OnnxTrainedParameters, LetOtherValuesBeCastLikeIntegers) {
  const auto model = import_nodes({{"Shape", {"w"}, {"s"}},
                                   {"CastLike", {"w", "s"}, {"whole"}},
                                   {"CastLike", {"whole", "w"}, {"back"}},
                                   {"Mul", {"x", "back"}, {"y"}}},
                                  list(numbers("w", {2}, {1.75f, 3})), "[]");
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->weights.size(), 1u);
  EXPECT_EQ(model->weights[0].values, (std::vector<float>{1, 3}));
}

// The parameter is a frozen class token of zeros.
TEST(OnnxTrainedParameters, LetEqualValuesBeBroadcastOverSamples) {
  const auto model = import_nodes(
      {{"Shape", {"x"}, {"s"}},
       {"Expand", {"w", "s"}, {"token"}},
       {"Concat", {"token", "x"}, {"both"}},
       {"MatMul", {"both", "v"}, {"y"}}},
      list(numbers("w", {1, 2}, {0, 0}), numbers("v", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})),
      R"(["v"])");
  EXPECT_REPORTS(yaml_of(model), "constant: {shape: [2], value: 0");
  EXPECT_REPORTS(yaml_of(model), "- concat:");
}

TEST(OnnxTrainedParameters, AreOneWhereLinearLayersShareThem) {
  const auto model = import_nodes(
      {{"Transpose", {"w"}, {"t"}}, {"MatMul", {"x", "t"}, {"a"}}, {"MatMul", {"a", "t"}, {"y"}}},
      list(numbers("w", {2, 2}, {1, 2, 3, 4})), R"(["w"])");
  EXPECT_REPORTS(yaml_of(model), "tied_to: gemm1");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->parameter_count, 4);
}

Result<ImportedModel> import_unnamed(const std::vector<FileNode>& nodes,
                                     std::vector<ProtobufMessage> tensors) {
  const std::string bytes = testing::model_of(nodes, std::move(tensors));
  ASSIGN_OR_RETURN(const OnnxFile file, OnnxFile::parse(std::as_bytes(std::span(bytes))));
  return import_model(file, {});
}

TEST(OnnxTrainedParameters, StayOneWhereAnOperationRepeatsThem) {
  const std::vector<FileNode> nodes = {
      {"Shape", {"like"}, {"s"}},          {"Expand", {"one", "s"}, {"ones"}},
      {"Mul", {"w", "ones"}, {"rows"}},    {"CastLike", {"one", "s"}, {"axis"}},
      {"Unsqueeze", {"x", "axis"}, {"u"}}, {"Add", {"u", "rows"}, {"y"}}};
  const auto tensors = [] {
    auto all = list(numbers("w", {2}, {1, 2}), numbers("one", {1}, {1}));
    all.push_back(numbers("like", {2, 2}, {1, 2, 3, 4}));
    return all;
  };
  for (const auto& model :
       {import_unnamed(nodes, tensors()), import_nodes(nodes, tensors(), R"(["w"])")}) {
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->parameter_count, 2) << yaml_of(model);
  }
}

TEST(OnnxTrainedParameters, AreNotTheirTranspose) {
  const auto model =
      import_unnamed({{"Shape", {"x"}, {"s"}},
                      {"CastLike", {"one", "s"}, {"axis"}},
                      {"Unsqueeze", {"x", "axis"}, {"u"}},
                      {"Add", {"u", "w"}, {"a"}},
                      {"Transpose", {"w"}, {"t"}},
                      {"Add", {"a", "t"}, {"y"}}},
                     list(numbers("w", {2, 2}, {1, 2, 3, 4}), numbers("one", {1}, {1})));
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->weights.size(), 2u) << yaml_of(model);
  EXPECT_EQ(model->weights[0].values, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(model->weights[1].values, (std::vector<float>{1, 3, 2, 4}));
}

TEST(OnnxTrainedParameters, ThatNoLayersCanShareAreRefusedByName) {
  const auto model = import_nodes({{"LayerNormalization", {"x", "norm.weight"}, {"a"}},
                                   {"LayerNormalization", {"a", "norm.weight"}, {"y"}}},
                                  list(numbers("norm.weight", {2}, {1, 2})), R"(["norm.weight"])");
  EXPECT_FALSE(model.ok());
  EXPECT_REPORTS(yaml_of(model), "'norm.weight'");
  EXPECT_REPORTS(yaml_of(model), "used elsewhere");
}

TEST(OnnxTrainedParameters, ThatArePartOfAWeightAreRefusedByName) {
  const auto model =
      import_nodes({{"Concat", {"a", "b"}, {"w"}}, {"Mul", {"x", "w"}, {"y"}}},
                   list(numbers("a", {1, 1}, {1}), numbers("b", {1, 1}, {2})), R"(["a"])");
  EXPECT_REPORTS(yaml_of(model), "parameter 'a'");
  EXPECT_REPORTS(yaml_of(model), "also has numbers that are fixed");
}

TEST(OnnxTrainedParameters, ThatControlTheGraphAreRefused) {
  const auto model = import_nodes(
      {{"Less", {"w", "w"}, {"c"}}, {"Cast", {"c"}, {"d"}}, {"Mul", {"x", "d"}, {"y"}}},
      list(numbers("w", {2}, {1, 2})), R"(["w"])");
  EXPECT_REPORTS(yaml_of(model), "depends on trained parameters");
}

TEST(OnnxTrainedParameters, AreAJsonListOfNames) {
  for (const char* wrong : {"w", "{\"w\": 1}", "[1]", "[\"w\""}) {
    const auto model =
        import_nodes({{"Mul", {"x", "w"}, {"y"}}}, list(numbers("w", {2}, {1, 2})), wrong);
    EXPECT_REPORTS(yaml_of(model), "is not a JSON list of names") << wrong;
  }
}

/// Returns the rules as text: "b.bias !c.*" freezes b.bias, but trains all names that match c.*.
std::string rules_text(const std::vector<std::string>& trained,
                       const std::vector<std::string>& frozen) {
  const std::vector<FreezeRule> rules = freeze_rules(trained, frozen);
  // For any lists, the rules must give each name the requested state.
  const auto is_frozen = [&](const std::string& name) {
    bool result = false;
    for (const FreezeRule& rule : rules) {
      if (glob_match(rule.match, name)) result = rule.freeze;
    }
    return result;
  };
  for (const std::string& name : trained) EXPECT_FALSE(is_frozen(name)) << name;
  for (const std::string& name : frozen) EXPECT_TRUE(is_frozen(name)) << name;
  std::string text;
  for (const FreezeRule& rule : rules) {
    text += (text.empty() ? "" : " ") + std::string(rule.freeze ? "" : "!") + rule.match;
  }
  return text;
}

TEST(OnnxTrainedParameters, AreFrozenByTheShorterList) {
  EXPECT_EQ(rules_text({"a.weight", "a.bias", "b.weight"}, {"b.bias", "c.weight", "c.bias"}),
            "b.bias c.*");
  EXPECT_EQ(rules_text({"e.weight"}, {"a.weight", "b.weight", "c.weight", "d.weight"}), "* !e.*");
  EXPECT_EQ(rules_text({"a.weight"}, {}), "");
  EXPECT_EQ(rules_text({}, {"a.weight"}), "a.*");
}

TEST(OnnxTrainedParameters, AreFrozenByPrefixOrSuffixPatterns) {
  EXPECT_EQ(rules_text({"enc_1_a.weight", "enc_10.weight", "fc.bias"},
                       {"enc_0_a.weight", "enc_0_b.weight", "enc_0_b.bias", "enc_2.weight"}),
            "enc_0_* enc_2.*");
  EXPECT_EQ(rules_text({"enc/0_fc.weight", "enc/1_fc.weight", "enc/1_norm.bias", "fc.weight"},
                       {"enc/0_fc.bias", "enc/0_norm.bias", "enc/1_fc.bias", "fc.bias"}),
            "*.bias !enc/1_norm.bias");
  // Most names that begin with enc_ are frozen, but not all.
  EXPECT_EQ(rules_text({"fc.weight", "enc_3.weight"},
                       {"enc_0.weight", "enc_1.weight", "enc_2.weight", "enc_4.weight"}),
            "enc_* !enc_3.*");
}

TEST(OnnxTrainedParameters, AreFrozenByFewPatternsInALargeModel) {
  std::vector<std::string> weights, biases, every_third, others;
  for (int i = 0; i < 1000; ++i) {
    const std::string layer = "block_" + std::to_string(i);
    weights.push_back(layer + ".weight");
    biases.push_back(layer + ".bias");
    (i % 3 == 0 ? every_third : others).push_back(layer + ".weight");
  }
  EXPECT_EQ(rules_text(weights, biases), "*.bias");
  EXPECT_EQ(freeze_rules(every_third, others).size(), 335u);
}

TEST(OnnxTrainedParameters, ThatTakeTooManyPatternsAreRefused) {
  std::vector<FileNode> nodes;
  std::vector<ProtobufMessage> tensors;
  std::string trained;
  constexpr int kLayers = 780;
  for (int i = 0; i < kLayers; ++i) {
    const std::string name = "p" + std::to_string(i) + ".weight";
    const std::string input = i == 0 ? "x" : "v" + std::to_string(i);
    nodes.push_back({"LayerNormalization",
                     {input, name},
                     {i + 1 == kLayers ? "y" : "v" + std::to_string(i + 1)}});
    tensors.push_back(numbers(name, {2}, {1, 2}));
    if (i % 3 == 0) trained += (trained.empty() ? "\"" : ", \"") + name + "\"";
  }
  const auto model = import_nodes(nodes, std::move(tensors), "[" + trained + "]");
  EXPECT_FALSE(model.ok());
  EXPECT_REPORTS(yaml_of(model),
                 "takes 261 patterns in recipe.parameter_groups, expected at most 256");
}

}  // namespace
}  // namespace trainyard::onnx
