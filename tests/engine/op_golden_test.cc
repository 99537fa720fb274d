// Compares values and gradients of single ops, and initial distributions of layers, with PyTorch
// (tests/golden/make_op_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/philox.h"
#include "src/models/layer.h"
#include "src/train/initialize.h"
#include "tests/support/run_case.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json json =
      Json::parse(std::ifstream(testing::source_path("tests/golden/pytorch_ops.json")));
  return json;
}

/// Returns the tensor's norm and its product with the random vector "probe", which the golden file
/// has.
std::pair<double, double> probes(const std::vector<double>& values) {
  testing::CaseBuilder b(DType::kF64);
  const TensorId probe = b.input("probe", {std::ssize(values)});
  const std::vector<double> draw = b.finish_update().values.at(probe);
  double squares = 0, product = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += values[i] * values[i];
    product += values[i] * draw[i];
  }
  return {std::sqrt(squares), product};
}

void expect_probes(const std::vector<double>& values, const Json& expected, double bound) {
  const auto [norm, product] = probes(values);
  const double expected_norm = expected[0], expected_product = expected[1];
  EXPECT_NEAR(norm, expected_norm, bound * expected_norm);
  // The product is of the order of the norm times the square root of the number of elements.
  const double scale = expected_norm * std::sqrt(static_cast<double>(values.size()));
  EXPECT_NEAR(product, expected_product, bound * scale);
}

void run_cases(Backend& backend, DType dtype, double bound) {
  size_t found = 0;
  for (const Json& expected : golden()["cases"]) {
    const std::string name = expected["case"];
    SCOPED_TRACE(name);
    const auto& cases = testing::graph_cases();
    const auto row = std::ranges::find(cases, name, &testing::GraphCase::name);
    ASSERT_NE(row, cases.end());
    ++found;
    std::map<TensorId, TensorId> gradients;
    const testing::CaseGraph c = testing::with_gradients(row->build(dtype), &gradients);
    const testing::CaseResult result = testing::run_case(c, backend, {});
    const Shape y = c.graph.tensor(c.graph.find_tensor("y").value()).type.shape;
    EXPECT_EQ(y.dims(), expected["shape"].get<std::vector<int64_t>>());
    expect_probes(result.values.at("y"), expected["y"], bound);
    EXPECT_EQ(gradients.size(), expected["gradients"].size());
    for (const auto& [parameter, gradient] : gradients) {
      const std::string& key = c.graph.tensor(parameter).name;
      SCOPED_TRACE(key);
      expect_probes(result.values.at(c.graph.tensor(gradient).name), expected["gradients"].at(key),
                    bound);
    }
  }
  EXPECT_GE(found, 40u);
}

// This engine's reference and PyTorch both compute in double, but add in different orders.
TEST(PyTorchOps, ReferenceMatchesValuesAndGradients) {
  run_cases(*make_reference_backend(), DType::kF64, 1e-12);
}
// The bound is that between two backends (tests/engine/cpu_parity_test.cc).
TEST(PyTorchOps, CpuMatchesValuesAndGradients) {
  run_cases(*make_cpu_backend(2), DType::kF32, 3e-5);
}

LayerSpec layer(std::string op, Attributes attributes = {}, std::vector<std::string> inputs = {}) {
  LayerSpec spec;
  spec.name = "it";
  spec.op = std::move(op);
  spec.attributes = std::move(attributes);
  spec.inputs = std::move(inputs);
  return spec;
}

LayerSpec behind(std::string name, std::string op, Attributes attributes = {}) {
  LayerSpec spec = layer(std::move(op), std::move(attributes));
  spec.name = std::move(name);
  return spec;
}

/// A model around the layer "it", of the sizes in make_op_golden.py, and its input and target.
struct Start {
  std::string name;  // the layer's name in the golden file
  std::vector<LayerSpec> layers;
  ModelInterface interface;
};

std::vector<Start> starts() {
  const int64_t three = 3;
  const auto kernel = Attribute(std::vector<int64_t>{3, 5});
  const ModelInterface rows{{400}, 0, TargetForm::kClass, 300};
  const ModelInterface images{{40, 8, 8}, 0, TargetForm::kClass, three};
  const ModelInterface tokens{{6}, 700, TargetForm::kClass, three, 0};
  const auto image = [&](LayerSpec it) {
    return std::vector<LayerSpec>{std::move(it), behind("head", "Gemm")};
  };
  const auto sequence = [&](LayerSpec it) {
    return std::vector<LayerSpec>{behind("e", "Embedding", {{"embedding_dim", int64_t{50}}}),
                                  std::move(it), behind("pool", "SequencePool"),
                                  behind("head", "Gemm")};
  };
  const Attributes filters = {
      {"out_channels", int64_t{64}}, {"kernel_shape", kernel}, {"group", int64_t{4}}};
  return {{"gemm", {layer("Gemm")}, rows},
          {"linear", {layer("Linear")}, rows},
          {"conv", image(layer("Conv", filters)), images},
          {"conv_transpose", image(layer("ConvTranspose", filters)), images},
          {"embedding",
           {layer("Embedding", {{"embedding_dim", int64_t{60}}}), behind("head", "Gemm")},
           tokens},
          {"embedding_bag",
           {layer("EmbeddingBag", {{"embedding_dim", int64_t{60}}}), behind("head", "Gemm")},
           tokens},
          {"lstm", sequence(layer("LSTM", {{"hidden_size", int64_t{70}}})), tokens},
          {"gru", sequence(layer("GRU", {{"hidden_size", int64_t{70}}})), tokens},
          {"batch_normalization", image(layer("BatchNormalization")), images},
          {"group_normalization", image(layer("GroupNormalization", {{"num_groups", int64_t{4}}})),
           images},
          {"instance_normalization", image(layer("InstanceNormalization")), images},
          {"layer_normalization", {layer("LayerNormalization"), behind("head", "Gemm")}, rows},
          {"rms_normalization", {layer("RMSNormalization"), behind("head", "Gemm")}, rows},
          {"p_relu", image(layer("PRelu")), images}};
}

// The file has the deviation and the largest value of one draw by PyTorch, and this engine draws
// other numbers. A wrong fan-in or distribution differs by far more than two draws do.
TEST(PyTorchStarts, EachKindOfLayerStartsAsPyTorchsDoes) {
  const Json& expected = golden()["starts"];
  EXPECT_EQ(starts().size(), expected.size());
  for (const Start& start : starts()) {
    SCOPED_TRACE(start.name);
    ModelSpec spec;
    spec.layers = start.layers;
    const Result<Model> built = build_model(spec, start.interface, {.batch_size = 2});
    ASSERT_TRUE(built.ok()) << built.error().message;
    size_t parameters = 0;
    for (const TensorInfo& t : built->graph.tensors()) {
      if (t.role != Role::kParameter || !t.name.starts_with("it.")) continue;
      SCOPED_TRACE(t.name);
      ++parameters;
      std::vector<float> values(static_cast<size_t>(t.type.shape.elements()));
      initialize_tensor(t, 7, std::as_writable_bytes(std::span(values)));
      double sum = 0, squares = 0, largest = 0;
      for (const float v : values) {
        sum += static_cast<double>(v);
        largest = std::max(largest, std::fabs(static_cast<double>(v)));
      }
      const auto n = static_cast<double>(values.size());
      for (const float v : values) {
        squares += (static_cast<double>(v) - sum / n) * (static_cast<double>(v) - sum / n);
      }
      const double theirs_largest = expected[start.name][t.name.substr(3)][0];
      const double theirs = expected[start.name][t.name.substr(3)][1];
      const double deviation = std::sqrt(squares / (n - 1));
      if (theirs == 0) {
        EXPECT_EQ(deviation, 0);
        EXPECT_EQ(largest, theirs_largest);
        continue;
      }
      // The bound is four standard errors of the ratio of two deviations, each with a relative
      // error of sqrt(1 / 2n).
      EXPECT_NEAR(deviation / theirs, 1, 4 / std::sqrt(n));
      // The largest value of a uniform draw is below its bound by a relative error of about 1/n;
      // that of a normal draw grows slowly with n and varies by about a tenth.
      const bool uniform = theirs_largest < 1.8 * theirs;
      EXPECT_NEAR(largest / theirs_largest, 1, uniform ? 10 / n : 0.25);
    }
    EXPECT_EQ(parameters, expected[start.name].size());
  }
}

}  // namespace
}  // namespace trainyard
