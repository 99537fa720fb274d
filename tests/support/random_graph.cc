#include "tests/support/random_graph.h"

#include "kernels/math/philox.h"
#include "src/autodiff/differentiate.h"
#include "src/graph/op.h"

namespace trainyard::testing {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(math::philox_u32(seed_, 0, 0, next_++)) % n;
  }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

constexpr int64_t kWidth = 6;

TensorId pick(Dice& dice, const std::vector<TensorId>& from) {
  return from[static_cast<size_t>(dice.below(static_cast<int64_t>(from.size())))];
}

TensorId image_part(CaseBuilder& b, Dice& dice, int64_t rows) {
  std::vector<TensorId> images = {b.input("image", {rows, 1 + dice.below(3), 4, 4})};
  const Attributes same{{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
  const int64_t C = b.graph().tensor(images[0]).type.shape[1];
  images[0] = b.one("conv0", "Conv", same, {images[0], b.parameter("conv0.w", {4, C, 3, 3})});
  const int64_t count = dice.below(5);
  for (int64_t k = 1; k <= count; ++k) {
    const std::string name = "conv" + std::to_string(k);
    const TensorId x = pick(dice, images);
    switch (dice.below(5)) {
      case 0:
        images.push_back(b.one(name, "Conv", same, {x, b.parameter(name + ".w", {4, 4, 3, 3})}));
        break;
      case 1:
        images.push_back(b.one(name, "Tanh", {}, {x}));
        break;
      case 2:
        images.push_back(b.one(name, "Relu", {}, {x}));
        break;
      case 3:
        images.push_back(
            b.node(name, "BatchNormalization", {{"training_mode", int64_t{1}}},
                   {x, b.parameter(name + ".scale", {4}), b.parameter(name + ".bias", {4}),
                    b.state(name + ".mean", {4}, 0.5), b.state(name + ".var", {4}, 0.5)},
                   3)[0]);
        break;
      default:
        images.push_back(b.one(name, "Add", {}, {x, pick(dice, images)}));
    }
  }
  const TensorId flat = b.one("flat", "Flatten", {}, {images.back()});
  return b.one("head", "Gemm", {{"transB", int64_t{1}}},
               {flat, b.parameter("head.w", {kWidth, 64})});
}

}  // namespace

CaseGraph random_training_graph(uint64_t seed, DType dtype, int64_t rows) {
  Dice dice(seed);
  CaseBuilder b(dtype);
  const Attributes trans_b{{"transB", int64_t{1}}};
  std::vector<TensorId> tensors = {b.input("x", {rows, kWidth})};
  std::vector<TensorId> weights = {b.parameter("w0", {kWidth, kWidth})};
  tensors.push_back(b.one("first", "Gemm", trans_b, {tensors[0], weights[0]}));
  if (dice.below(2) == 0) tensors.push_back(image_part(b, dice, rows));
  const TensorId step = b.step(seed % 100);
  const int64_t count = 2 + dice.below(14);
  for (int64_t k = 1; k <= count; ++k) {
    const std::string name = "n" + std::to_string(k);
    const TensorId x = pick(dice, tensors);
    switch (dice.below(6)) {
      case 0:
        weights.push_back(b.parameter(name + ".w", {kWidth, kWidth}));
        tensors.push_back(
            b.one(name, "Gemm", trans_b, {x, weights.back(), b.parameter(name + ".b", {kWidth})}));
        break;
      case 1:
        tensors.push_back(b.one(name, "Gemm", trans_b, {x, pick(dice, weights)}));
        break;
      case 2:
        tensors.push_back(b.one(name, dice.below(2) == 0 ? "Relu" : "Gelu", {}, {x}));
        break;
      case 3:
        tensors.push_back(b.one(name, "Dropout", {{"ratio", 0.25}, {"stream", k}}, {x, step}));
        break;
      default:
        tensors.push_back(b.one(name, "Add", {}, {x, pick(dice, tensors)}));
    }
  }
  const TensorId last = b.one("last", "Add", {}, {tensors.back(), tensors[1]});
  const TensorId squashed = b.one("squashed", "Tanh", {}, {last});
  CaseGraph c = b.finish(squashed);
  const auto gradients = differentiate(c.graph, c.loss);
  const TensorId rate = c.graph.add_tensor(
      {"rate", {{1}, DType::kF32}, Role::kInput, Layout::kRowMajor, kNoNode, {}});
  c.values[rate] = {0.125};
  for (const auto& [parameter, gradient] : gradients) {
    const TensorInfo p = c.graph.tensor(parameter);
    const TensorId v = c.graph.add_tensor(
        {p.name + ".v", p.type, Role::kOptimizerState, Layout::kRowMajor, kNoNode, {}});
    c.values[v] = std::vector<double>(static_cast<size_t>(p.type.shape.elements()), 0.5);
    c.graph
        .add_node(p.name + "/update", get_op("SgdUpdate"), {{"momentum", 0.5}},
                  {parameter, gradient, rate, v}, {}, Phase::kUpdate)
        .value();
  }
  return c;
}

}  // namespace trainyard::testing
