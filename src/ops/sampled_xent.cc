#include "src/ops/sampled_xent.h"

#include <limits>
#include <string>

#include "src/base/text.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

constexpr int64_t kIndexMax = std::numeric_limits<int32_t>::max();
constexpr int64_t kKept = 3, kMicroStep = 4;  // input indices of SampleClasses

class SampleClasses final : public Op {
 public:
  std::string_view type() const override { return "SampleClasses"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"labels", "step", "counted", "kept", "micro_step"}, 2,
                   {"classes", "samples", "distribution", "ignore_index", "seed", "stream", "dtype",
                    "micro_batches"});
    check.dtype(0, DType::kI32).rank(0, 1).not_empty(0).dtype(1, DType::kI64).shape(1, {1});
    check.dtype(2, DType::kI32).rank(2, 1).int_in("classes", 0, 2, kIndexMax);
    check.dtype(kKept, DType::kI32).dtype(kMicroStep, DType::kI64).shape(kMicroStep, {1});
    check.int_in("micro_batches", 1, 1, kIndexMax);
    if (!check.ok()) return check.error();
    const Attributes& a = c.attributes();
    const int64_t classes = a.get_int("classes", 0), samples = a.get_int("samples", 0);
    check.int_in("samples", 0, 1, classes / 2);
    check.int_in("stream", 0, 0, std::numeric_limits<uint32_t>::max());
    if (a.find("ignore_index") != nullptr) check.int_in("ignore_index", 0, 0, classes - 1);
    const std::string distribution = a.get_string("distribution", "log_uniform");
    check.require(distribution == "log_uniform" || distribution == "uniform",
                  "ATTRIBUTE_OUT_OF_RANGE", "distribution",
                  quoted_value(distribution) + " is not known, expected log_uniform or uniform");
    const std::string name = a.get_string("dtype", "F32");
    const auto dtype = find_dtype(name);
    check.require(dtype && is_float(*dtype), "ATTRIBUTE_OUT_OF_RANGE", "dtype",
                  quoted_value(name) + " is not possible, expected 'F32' or 'F64'");
    if (!check.ok()) return check.error();
    const int64_t rows = c.input(0).shape[0];
    const int64_t counted = c.has_input(2) ? c.input(2).shape[0] : rows;
    const int64_t micro_batches = a.get_int("micro_batches", 1);
    check.require(counted >= rows && counted <= (kIndexMax - samples) / micro_batches,
                  "SHAPE_MISMATCH", "counted",
                  "shape [" + std::to_string(counted) + "], expected [" + std::to_string(rows) +
                      "] or more, and fewer than 2^31 columns");
    check.require(
        c.has_input(kKept) == c.has_input(kMicroStep) && (micro_batches == 1 || c.has_input(kKept)),
        "INPUT_COUNT_INVALID", "kept",
        "and micro_step must be given together, and if micro_batches is above 1");
    const Shape columns{samples + counted * micro_batches};
    check.shape(kKept, columns);
    if (!check.ok()) return check.error();
    return std::vector{TensorType{columns, DType::kI32}, c.input(0), TensorType{columns, *dtype}};
  }
  std::vector<int64_t> mutated_inputs(const Node& node) const override {
    if (std::ssize(node.inputs) <= kKept || node.inputs[kKept] == kNoTensor) return {};
    return {kKept};
  }
  // Drawn classes and counted labels are the same on all ranks; each rank finds the positions of
  // its own labels.
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    using enum Spread;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] != kOwn && (i != 2 || inputs[i] != kGathered)) return std::nullopt;
    }
    return std::vector<Spread>(outputs, kOwn);
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    // Random draws and logarithms.
    cost.flops = 100 * graph.tensor(node.outputs[0]).type.shape.elements();
    return cost;
  }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {2}}; }
};

class TakeRows final : public Op {
 public:
  std::string_view type() const override { return "TakeRows"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"table", "index"}, 2);
    check.float_type(0).rank_at_least(0, 1).not_empty(0);
    check.dtype(1, DType::kI32).rank(1, 1).not_empty(1);
    if (!check.ok()) return check.error();
    std::vector<int64_t> dims = c.input(0).shape.dims();
    dims[0] = c.input(1).shape[0];
    return std::vector{TensorType{Shape(std::move(dims)), c.input(0).dtype}};
  }
  // Counts only the rows that are read, not the whole table.
  Cost cost(const Graph& graph, const Node& node) const override {
    return {0, 2 * graph.tensor(node.outputs[0]).type.bytes() +
                   graph.tensor(node.inputs[1]).type.bytes()};
  }
};

/// Does the checks common to the loss and its gradient. `scores` is the name of input 0 in
/// messages.
void check_columns(OpChecks& check, const InferContext& c, std::string_view scores) {
  check.float_type(0).rank(0, 2).not_empty(0).dtype(1, DType::kI32);
  check.int_in("samples", 0, 1, kIndexMax);
  if (!check.ok()) return;
  const Shape& z = c.input(0).shape;
  check.shape(1, {z[0]});
  check.require(z[1] > c.attributes().get_int("samples", 0), "SHAPE_MISMATCH", scores,
                "shape " + z.to_string() + " has no columns for labels after the samples");
}

class SampledXent final : public Op {
 public:
  std::string_view type() const override { return "SampledSoftmaxCrossEntropyLoss"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"z", "position", "log_expected"}, 3, {"samples"});
    check_columns(check, c, "z");
    if (!check.ok()) return check.error();
    check.same_dtype(2, 0).shape(2, {c.input(0).shape[1]});
    if (!check.ok()) return check.error();
    return std::vector{TensorType{{1}, c.input(0).dtype}, c.input(0)};
  }
  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.grad_output(1) == kNoTensor,
                    c.node().name + ": prob is for reading, it has no gradient");
    c.set_grad(0, c.add("grad", *sampled_xent_grad_op(), c.node().attributes,
                        {c.output(1), c.input(1), c.grad_output(0)}, {true})[0]);
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, 16);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{1, 0}};
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {0, 1}, .f32_inputs = {0, 2}};
  }
};

class SampledXentGrad final : public Op {
 public:
  std::string_view type() const override { return "SampledSoftmaxCrossEntropyLossGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"prob", "position", "dloss"}, 3, {"samples"});
    check_columns(check, c, "prob");
    check.same_dtype(2, 0).shape(2, {1});
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, 2);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {0}, .f32_inputs = {2}}; }
};

}  // namespace

const Op* sample_classes_op() {
  static const SampleClasses op;
  return &op;
}
const Op* take_rows_op() {
  static const TakeRows op;
  return &op;
}
const Op* sampled_xent_op() {
  static const SampledXent op;
  return &op;
}
const Op* sampled_xent_grad_op() {
  static const SampledXentGrad op;
  return &op;
}

}  // namespace trainyard
