#include "src/ops/gemm.h"

#include <algorithm>

#include "src/ops/shape_helpers.h"
#include "src/ops/tf32.h"

namespace trainyard {
namespace {

// Does the checks common to the forward and the gradient op. x is input 0, w input 1.
void check_gemm(OpChecks& check, const InferContext& c) {
  check.float_type(0).rank(0, 2).not_empty(0).same_dtype(1, 0).rank(1, 2).not_empty(1);
  check.int_in("transB", 0, 1, 1);
  if (!check.ok()) return;
  const Shape& x = c.input(0).shape;
  const Shape& w = c.input(1).shape;
  check.require(w[1] == x[1], "SHAPE_MISMATCH", "w",
                "shape " + w.to_string() + " takes " + std::to_string(w[1]) +
                    " features, expected " + std::to_string(x[1]) + " as x " + x.to_string());
}

/// Returns whether x has all ranks' rows and the other inputs (weights, bias, dy) are all of spread
/// `part`.
bool are_of(Spread part, const std::vector<Spread>& inputs) {
  const auto is_of = [part](Spread p) { return p == part; };
  return inputs[0] == Spread::kGathered && std::all_of(inputs.begin() + 1, inputs.end(), is_of);
}
/// Returns whether x has this rank's units of all rows, and w the weights that multiply these
/// units.
bool read_units(const std::vector<Spread>& inputs) {
  return inputs[0] == Spread::kUnits && inputs[1] == Spread::kUnits;
}

void check_form(OpChecks& check, const InferContext& c) {
  const std::string form = check.ok() ? c.attributes().get_string(kApproximate, "tanh") : "tanh";
  check.require(form == "none" || form == "tanh", "ATTRIBUTE_OUT_OF_RANGE", kApproximate,
                "'" + form + "' is not known, expected 'none' or 'tanh'");
}

TensorType mask_of(const Shape& y) { return {{y[0], relu_mask_bytes(y[1])}, DType::kU8}; }

int64_t multiply_flops(const Graph& graph, const Node& node) {
  const Shape& x = graph.tensor(node.inputs[0]).type.shape;
  const Shape& w = graph.tensor(node.inputs[1]).type.shape;
  return 2 * x[0] * x[1] * w[0];
}

class Gemm : public Op {
 public:
  std::string_view type() const override { return "Gemm"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "b"}, 2, {"transB", kTf32Attribute});
    return infer_product(check, c);
  }
  static Result<std::vector<TensorType>> infer_product(OpChecks& check, const InferContext& c) {
    check_gemm(check, c);
    if (check.ok()) check.same_dtype(2, 0).shape(2, {c.input(1).shape[0]});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{c.input(0).shape[0], c.input(1).shape[0]}, c.input(0).dtype}};
  }

  void differentiate(GradientContext& c) const override {
    const bool has_bias = c.node().inputs.size() > 2 && c.input(2) != kNoTensor;
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1),
                                      has_bias && c.needs_grad(2)};
    const auto grads = c.add("grad", *gemm_grad_op(), c.node().attributes,
                             {c.input(0), c.input(1), c.grad_output(0)}, wanted);
    for (int64_t i = 0; i < 3; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = multiply_flops(graph, node);
    if (node.inputs.size() > 2 && node.inputs[2] != kNoTensor) {
      cost.flops += graph.tensor(node.outputs[0]).type.shape.elements();
    }
    return cost;
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    if (are_of(Spread::kUnits, inputs)) return std::vector(outputs, Spread::kUnits);
    const bool is_plain = type() == "Gemm";
    if (is_plain && are_of(Spread::kClasses, inputs)) return std::vector{Spread::kClasses};
    // A node with a bias is excluded, since every rank would add the bias.
    if (is_plain && read_units(inputs) && inputs.size() == 2) return std::vector{Spread::kSummand};
    return Op::spread(inputs, outputs);
  }
  PrecisionRule precision_rule() const override { return {.factors = {0, 1}}; }
};

class GemmGelu final : public Gemm {
 public:
  std::string_view type() const override { return "GemmGelu"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "b"}, 2, {"transB", kTf32Attribute, kApproximate});
    check_form(check, c);
    ASSIGN_OR_RETURN(const std::vector<TensorType> y, infer_product(check, c));
    return std::vector{y[0], y[0]};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Gemm::cost(graph, node);
    cost.flops += 15 * graph.tensor(node.outputs[0]).type.shape.elements();
    return cost;
  }
};

class GemmRelu final : public Gemm {
 public:
  std::string_view type() const override { return "GemmRelu"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    ASSIGN_OR_RETURN(const std::vector<TensorType> y, Gemm::infer(c));
    return std::vector{y[0], mask_of(y[0].shape)};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Gemm::cost(graph, node);
    cost.flops += graph.tensor(node.outputs[0]).type.shape.elements();
    return cost;
  }
};

class GemmGrad : public Op {
 public:
  std::string_view type() const override { return "GemmGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "dy"}, 3, {"transB", kTf32Attribute});
    return infer_gradients(check, c);
  }
  Result<std::vector<TensorType>> infer_gradients(OpChecks& check, const InferContext& c) const {
    check_gemm(check, c);
    if (check.ok()) {
      check.same_dtype(2, 0).shape(2, {c.input(0).shape[0], c.input(1).shape[0]});
    }
    if (!check.ok()) return check.error();
    return std::vector{c.input(0), c.input(1), TensorType{{c.input(1).shape[0]}, c.input(0).dtype}};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    for (size_t k = 0; k < 2; ++k) {
      if (node.outputs[k] != kNoTensor) cost.flops += multiply_flops(graph, node);
    }
    if (node.outputs[2] != kNoTensor) {
      cost.flops += graph.tensor(node.inputs[2]).type.shape.elements();
    }
    return cost;
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    using enum Spread;
    const bool is_plain = type() == "GemmGrad";
    for (const Spread part : {kClasses, kUnits}) {
      if (is_plain && are_of(part, inputs)) return std::vector{kSummand, part, part};
    }
    // Input 3 is the pre-activation or mask of a fused activation. A mask that is left out counts
    // as kOwn.
    const bool is_between = inputs.size() == 3 || inputs[3] == kUnits || inputs[3] == kOwn;
    if (read_units(inputs) && inputs[2] == kGathered && is_between) {
      return std::vector{kUnits, kUnits, kGathered};
    }
    return Op::spread(inputs, outputs);
  }
  PrecisionRule precision_rule() const override { return {.factors = {0, 1}}; }
};

class GeluGemmGrad final : public GemmGrad {
 public:
  std::string_view type() const override { return "GeluGemmGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "dy", "pre"}, 4, {"transB", kTf32Attribute, kApproximate});
    check_form(check, c);
    ASSIGN_OR_RETURN(std::vector<TensorType> types, infer_gradients(check, c));
    check.same_dtype(3, 0).same_shape(3, 0);
    if (!check.ok()) return check.error();
    return types;
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = GemmGrad::cost(graph, node);
    cost.flops += 20 * graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
};

class ReluGemmGrad final : public GemmGrad {
 public:
  std::string_view type() const override { return "ReluGemmGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "dy", "mask"}, 3, {"transB", kTf32Attribute});
    ASSIGN_OR_RETURN(std::vector<TensorType> types, infer_gradients(check, c));
    if (c.has_input(3)) check.dtype(3, DType::kU8).shape(3, mask_of(c.input(0).shape).shape);
    if (!check.ok()) return check.error();
    return types;
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = GemmGrad::cost(graph, node);
    cost.flops += graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
};

class GemmAdd final : public Gemm {
 public:
  std::string_view type() const override { return "GemmAdd"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "b", "c"}, 2, {"transB", kTf32Attribute});
    ASSIGN_OR_RETURN(const std::vector<TensorType> y, infer_product(check, c));
    check.require(c.has_input(3), "INPUT_COUNT_INVALID", "c", "this input is required");
    if (check.ok()) check.same_dtype(3, 0).shape(3, y[0].shape);
    if (!check.ok()) return check.error();
    return y;
  }
  void differentiate(GradientContext& c) const override { Op::differentiate(c); }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Gemm::cost(graph, node);
    cost.flops += graph.tensor(node.outputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 3}};
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    return Op::spread(inputs, outputs);
  }
};

class GemmGradAdd final : public GemmGrad {
 public:
  std::string_view type() const override { return "GemmGradAdd"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "w", "dy", "c"}, 4, {"transB", kTf32Attribute});
    ASSIGN_OR_RETURN(std::vector<TensorType> types, infer_gradients(check, c));
    check.same_dtype(3, 0).same_shape(3, 0);
    if (!check.ok()) return check.error();
    return types;
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = GemmGrad::cost(graph, node);
    cost.flops += graph.tensor(node.inputs[0]).type.shape.elements();
    return cost;
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 3}};
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    return Op::spread(inputs, outputs);
  }
};

}  // namespace

const Op* gemm_op() {
  static const Gemm op;
  return &op;
}
const Op* gemm_grad_op() {
  static const GemmGrad op;
  return &op;
}
const Op* gemm_gelu_op() {
  static const GemmGelu op;
  return &op;
}
const Op* gelu_gemm_grad_op() {
  static const GeluGemmGrad op;
  return &op;
}
const Op* gemm_relu_op() {
  static const GemmRelu op;
  return &op;
}
const Op* gemm_add_op() {
  static const GemmAdd op;
  return &op;
}
const Op* gemm_grad_add_op() {
  static const GemmGradAdd op;
  return &op;
}
const Op* relu_gemm_grad_op() {
  static const ReluGemmGrad op;
  return &op;
}

}  // namespace trainyard
