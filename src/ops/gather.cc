#include "src/ops/gather.h"

#include <limits>

#include "src/ops/shape_helpers.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

Shape gathered_shape(const Shape& table, const Shape& indices) {
  std::vector<int64_t> dims = indices.dims();
  dims.insert(dims.end(), table.dims().begin() + 1, table.dims().end());
  return Shape(std::move(dims));
}

void check_part(OpChecks& check, const InferContext& c) {
  check.int_in(kRanks, 0, 1, std::numeric_limits<int32_t>::max());
  if (check.ok()) check.int_in(kRank, -1, 0, c.attributes().get_int(kRanks, 1) - 1);
}

std::optional<std::vector<Spread>> spread_exactly(const std::vector<Spread>& inputs,
                                                  const std::vector<Spread>& taken, Spread given) {
  if (inputs != taken) return std::nullopt;
  return std::vector{given};
}

class Gather : public Op {
 public:
  std::string_view type() const override { return "Gather"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"table", "indices"}, 2, {"axis"});
    check.int_in("axis", 0, 0, 0);
    return infer_rows(check, c);
  }

  void differentiate(GradientContext& c) const override {
    const auto& shape = c.graph().tensor(c.input(0)).type.shape.dims();
    c.set_grad(0, c.add("grad", *gather_grad_op(), {{"shape", shape}},
                        {c.input(1), c.grad_output(0)}, {true})[0]);
  }

  // Counts only the rows that are read, not the whole table.
  Cost cost(const Graph& graph, const Node& node) const override {
    return {0, 2 * graph.tensor(node.outputs[0]).type.bytes() +
                   graph.tensor(node.inputs[1]).type.bytes()};
  }
  // A table that is itself the result of a lookup (TakeRows) stays in F32, as a parameter does.
  PrecisionRule precision_rule() const override { return {.f32_inputs = {0}}; }

 protected:
  static Result<std::vector<TensorType>> infer_rows(OpChecks& check, const InferContext& c) {
    check.float_type(0).rank_at_least(0, 2).not_empty(0);
    check.dtype(1, DType::kI32).rank_at_least(1, 1).not_empty(1);
    if (!check.ok()) return check.error();
    return std::vector{
        TensorType{gathered_shape(c.input(0).shape, c.input(1).shape), c.input(0).dtype}};
  }
};

class GatherGrad : public Op {
 public:
  std::string_view type() const override { return "GatherGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"indices", "dy"}, 2, {"shape"});
    return infer_table(check, c);
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = graph.tensor(node.inputs[1]).type.shape.elements();
    return cost;
  }

 protected:
  static Result<std::vector<TensorType>> infer_table(OpChecks& check, const InferContext& c) {
    check.dtype(0, DType::kI32).rank_at_least(0, 1).not_empty(0).float_type(1);
    const Shape table(c.attributes().get_ints("shape", {}));
    check.require(table.fits() && table.rank() >= 2, "ATTRIBUTE_OUT_OF_RANGE", "shape",
                  table.to_string() + " is not a table");
    if (!check.ok()) return check.error();
    check.shape(1, gathered_shape(table, c.input(0).shape));
    if (!check.ok()) return check.error();
    return std::vector{TensorType{table, c.input(1).dtype}};
  }
};

class SplitGather final : public Gather {
 public:
  std::string_view type() const override { return "SplitGather"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"table", "indices"}, 2, {kRank, kRanks});
    check_part(check, c);
    return infer_rows(check, c);
  }

  void differentiate(GradientContext& c) const override {
    Attributes attributes = c.node().attributes;
    attributes.set("shape", c.graph().tensor(c.input(0)).type.shape.dims());
    c.set_grad(0, c.add("grad", *split_gather_grad_op(), std::move(attributes),
                        {c.input(1), c.grad_output(0)}, {true})[0]);
  }

  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_exactly(inputs, {Spread::kClasses, Spread::kGathered}, Spread::kSummand);
  }
};

class SplitGatherGrad final : public GatherGrad {
 public:
  std::string_view type() const override { return "SplitGatherGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"indices", "dy"}, 2, {"shape", kRank, kRanks});
    check_part(check, c);
    return infer_table(check, c);
  }

  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t) const override {
    return spread_exactly(inputs, {Spread::kGathered, Spread::kGathered}, Spread::kClasses);
  }
};

}  // namespace

const Op* gather_op() {
  static const Gather op;
  return &op;
}
const Op* gather_grad_op() {
  static const GatherGrad op;
  return &op;
}
const Op* split_gather_op() {
  static const SplitGather op;
  return &op;
}
const Op* split_gather_grad_op() {
  static const SplitGatherGrad op;
  return &op;
}

}  // namespace trainyard
