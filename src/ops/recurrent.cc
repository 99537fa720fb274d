#include "src/ops/recurrent.h"

#include "src/ops/shape_helpers.h"
#include "src/ops/tf32.h"

namespace trainyard {
namespace {

enum class Cell : uint8_t { kLstm, kGru };

int64_t gates_of(Cell cell) { return cell == Cell::kLstm ? 4 : 3; }

struct Sizes {
  int64_t N, T, F, H, GH;
};

Sizes sizes_of(const InferContext& c) {
  const Shape& x = c.input(0).shape;
  return {x[0], x[1], x[2], c.input(2).shape[1], c.input(1).shape[0]};
}

/// Does the checks common to the forward and the gradient op. x is input 0, w input 1, r input 2.
void check_weights(OpChecks& check, const InferContext& c, Cell cell) {
  check.float_type(0).rank(0, 3).not_empty(0);
  check.same_dtype(1, 0).rank(1, 2).not_empty(1);
  check.same_dtype(2, 0).rank(2, 2).not_empty(2);
  if (!check.ok()) return;
  const std::string direction = c.attributes().get_string("direction", "forward");
  check.require(direction == "forward" || direction == "reverse", "ATTRIBUTE_OUT_OF_RANGE",
                "direction", "'" + direction + "' is not supported, expected forward or reverse");
  const int64_t H = c.input(2).shape[1];
  const int64_t GH = gates_of(cell) * H;
  const int64_t hidden = c.attributes().get_int("hidden_size", H);
  check.require(hidden == H, "SHAPE_MISMATCH", "hidden_size",
                std::to_string(hidden) + " does not fit r " + c.input(2).shape.to_string());
  if (check.ok()) check.shape(1, {GH, c.input(0).shape[2]}).shape(2, {GH, H});
}

int64_t product_flops(const Graph& graph, const Node& node) {
  const Shape& x = graph.tensor(node.inputs[0]).type.shape;
  const Shape& r = graph.tensor(node.inputs[2]).type.shape;
  return 2 * x[0] * x[1] * r[0] * (x[2] + r[1]);
}

class Recurrent final : public Op {
 public:
  explicit Recurrent(Cell cell) : cell_(cell) {}
  std::string_view type() const override { return cell_ == Cell::kLstm ? "LSTM" : "GRU"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "r", "wb", "rb"}, 3, {"hidden_size", "direction", kTf32Attribute});
    check_weights(check, c, cell_);
    if (!check.ok()) return check.error();
    const auto [N, T, F, H, GH] = sizes_of(c);
    check.require(c.has_input(3) == c.has_input(4), "SHAPE_MISMATCH", "rb",
                  "there is one bias, expected both wb and rb or neither");
    check.same_dtype(3, 0).shape(3, {GH}).same_dtype(4, 0).shape(4, {GH});
    if (!check.ok()) return check.error();
    const DType t = c.input(0).dtype;
    return std::vector{TensorType{{N, T, H}, t}, TensorType{{N, H}, t}, TensorType{{N, T, GH}, t},
                       TensorType{{N, T, H}, t}};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.output(2) != kNoTensor && c.output(3) != kNoTensor,
                    c.node().name + ": backward needs the gates and the state");
    const bool bias = c.node().inputs.size() > 4 && c.input(4) != kNoTensor;
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1), c.needs_grad(2),
                                      bias && c.needs_grad(3), bias && c.needs_grad(4)};
    const Op* gradient = cell_ == Cell::kLstm ? lstm_grad_op() : gru_grad_op();
    const auto grads = c.add("grad", *gradient, c.node().attributes,
                             {c.input(0), c.input(1), c.input(2), c.output(0), c.output(2),
                              c.output(3), c.grad_output(0), c.grad_output(1)},
                             wanted);
    for (int64_t i = 0; i < 5; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = product_flops(graph, node);
    return cost;
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {3}, .factors = {0, 1, 2}};
  }

 private:
  Cell cell_;
};

class RecurrentGrad final : public Op {
 public:
  explicit RecurrentGrad(Cell cell) : cell_(cell) {}
  std::string_view type() const override { return cell_ == Cell::kLstm ? "LSTMGrad" : "GRUGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "r", "y", "gates", "state", "dy", "dy_h"}, 6,
                   {"hidden_size", "direction", kTf32Attribute});
    check_weights(check, c, cell_);
    if (!check.ok()) return check.error();
    const auto [N, T, F, H, GH] = sizes_of(c);
    check.same_dtype(3, 0).shape(3, {N, T, H}).same_dtype(4, 0).shape(4, {N, T, GH});
    check.same_dtype(5, 0).shape(5, {N, T, H});
    check.same_dtype(6, 0).shape(6, {N, T, H}).same_dtype(7, 0).shape(7, {N, H});
    check.require(c.has_input(6) || c.has_input(7), "SHAPE_MISMATCH", "dy",
                  "expected dy, dy_h or both");
    if (!check.ok()) return check.error();
    const TensorType bias{{GH}, c.input(0).dtype};
    return std::vector{c.input(0), c.input(1), c.input(2), bias, bias};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = 2 * product_flops(graph, node);
    if (node.outputs[0] == kNoTensor) {
      const Shape& x = graph.tensor(node.inputs[0]).type.shape;
      cost.flops -= 2 * x.elements() * graph.tensor(node.inputs[1]).type.shape[0];
    }
    return cost;
  }
  PrecisionRule precision_rule() const override { return {.factors = {0, 1, 2}}; }

 private:
  Cell cell_;
};

}  // namespace

const Op* lstm_op() {
  static const Recurrent op(Cell::kLstm);
  return &op;
}
const Op* lstm_grad_op() {
  static const RecurrentGrad op(Cell::kLstm);
  return &op;
}
const Op* gru_op() {
  static const Recurrent op(Cell::kGru);
  return &op;
}
const Op* gru_grad_op() {
  static const RecurrentGrad op(Cell::kGru);
  return &op;
}

}  // namespace trainyard
