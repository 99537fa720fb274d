#include "src/ops/rotary_embedding.h"

#include <algorithm>
#include <cmath>

#include "kernels/rotary.h"
#include "src/base/text.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

constexpr int64_t kFlopsPerAngle = 40;  // a cosine and a sine

class RotaryTables final : public Op {
 public:
  std::string_view type() const override { return "RotaryTables"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"positions"}, 0, {"frequencies", "factor", "length", "dtype"});
    check.dtype(0, DType::kI32).rank(0, 2).not_empty(0);
    const Attributes& a = c.attributes();
    const std::vector<double> frequencies = a.get_floats("frequencies", {});
    const auto pairs = std::ssize(frequencies);
    check.require(pairs >= 1 && pairs <= kernels::kRotaryPairsMax, "ATTRIBUTE_OUT_OF_RANGE",
                  "frequencies",
                  "has " + std::to_string(pairs) + " entries, expected 1.." +
                      std::to_string(kernels::kRotaryPairsMax));
    check.require(std::ranges::all_of(frequencies, [](double f) { return std::isfinite(f); }),
                  "ATTRIBUTE_OUT_OF_RANGE", "frequencies", "expected finite numbers");
    check.require(std::isfinite(a.get_float("factor", 1)), "ATTRIBUTE_OUT_OF_RANGE", "factor",
                  "expected a finite number");
    const std::string name = a.get_string("dtype", "F32");
    const auto dtype = find_dtype(name);
    check.require(dtype && is_float(*dtype), "ATTRIBUTE_OUT_OF_RANGE", "dtype",
                  quoted_value(name) + " is not possible, expected 'F32' or 'F64'");
    std::vector<int64_t> dims = {a.get_int("length", 0)};
    if (c.has_input(0)) {
      check.require(a.find("length") == nullptr, "ATTRIBUTE_UNKNOWN", "length",
                    "follows from positions");
      if (check.ok()) dims = c.input(0).shape.dims();
    } else {
      check.int_in("length", 0, 1, Shape::kElementsMax);
    }
    dims.push_back(pairs);
    const Shape shape(std::move(dims));
    check.require(shape.fits(), "ATTRIBUTE_OUT_OF_RANGE", "length",
                  "the tables would have shape " + shape.to_string());
    if (!check.ok()) return check.error();
    return std::vector{TensorType{shape, *dtype}, TensorType{shape, *dtype}};
  }
  void differentiate(GradientContext&) const override {}
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = kFlopsPerAngle * graph.tensor(node.outputs[0]).type.shape.elements();
    return cost;
  }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {0, 1}}; }
};

class RotaryEmbedding final : public Op {
 public:
  std::string_view type() const override { return "RotaryEmbedding"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "cos", "sin", "positions"}, 3, {"num_heads", "interleaved", "inverse"});
    check.float_type(0).rank(0, 3).not_empty(0).same_dtype(1, 0).same_dtype(2, 0);
    check.rank_at_least(1, 2).not_empty(1).same_shape(2, 1);
    check.int_in("interleaved", 0, 0, 1).int_in("inverse", 0, 0, 1);
    if (!check.ok()) return check.error();
    const Shape &x = c.input(0).shape, &cos = c.input(1).shape;
    check.int_in("num_heads", 0, 1, x[2]);
    if (!check.ok()) return check.error();
    const int64_t heads = c.attributes().get_int("num_heads", 1);
    check.require(x[2] % heads == 0, "ATTRIBUTE_OUT_OF_RANGE", "num_heads",
                  std::to_string(heads) + " does not divide the width " + std::to_string(x[2]));
    if (!check.ok()) return check.error();
    const int64_t pairs = cos[cos.rank() - 1];
    check.require(2 * pairs <= x[2] / heads, "SHAPE_MISMATCH", "cos",
                  "has " + std::to_string(pairs) + " columns, expected at most half of a head, " +
                      std::to_string(x[2] / heads / 2));
    if (cos.rank() == 2) {
      check.require(c.has_input(3) || cos[0] >= x[1], "SHAPE_MISMATCH", "cos",
                    "has " + std::to_string(cos[0]) + " rows, expected at least " +
                        std::to_string(x[1]) + ", one for each position");
      check.dtype(3, DType::kI32).shape(3, {x[0], x[1]});
    } else {
      check.shape(1, {x[0], x[1], pairs});
      check.require(!c.has_input(3), "INPUT_COUNT_INVALID", "positions",
                    "tables of rank 3 have a row for each token");
    }
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }

  void differentiate(GradientContext& c) const override {
    if (!c.needs_grad(0)) return;
    std::vector<TensorId> inputs = c.node().inputs;
    inputs[0] = c.grad_output(0);
    Attributes attributes = c.node().attributes;
    attributes.set("inverse", 1 - attributes.get_int("inverse", 0));
    c.set_grad(0, c.add("grad", *this, std::move(attributes), std::move(inputs), {true})[0]);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, 3);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  PrecisionRule precision_rule() const override { return {.f32_inputs = {1, 2}}; }
};

}  // namespace

const Op* rotary_tables_op() {
  static const RotaryTables op;
  return &op;
}
const Op* rotary_embedding_op() {
  static const RotaryEmbedding op;
  return &op;
}

}  // namespace trainyard
