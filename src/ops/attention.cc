#include "src/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/ops/shape_helpers.h"
#include "src/ops/tf32.h"

namespace trainyard {
namespace {

constexpr int64_t kHeadsMax = 65536;

/// The heads of a node, and the inputs from its query on.
struct Heads {
  int64_t query, kv;
  explicit Heads(const Attributes& a)
      : query(a.get_int("q_num_heads", 1)), kv(a.get_int("kv_num_heads", query)) {}
  /// Returns the number of heads whose elements are side by side in query.
  int64_t in_query(bool packed) const { return packed ? query + 2 * kv : query; }
};

std::vector<std::string_view> attributes_of() {
  return {"q_num_heads", "kv_num_heads", "is_causal", "window", "cached",      "scale",
          "dropout",     "seed",         "stream",    "rank",   kTf32Attribute};
}

void check_drawn(OpChecks& check, const InferContext& c, int64_t step) {
  const double dropout = c.attributes().get_float("dropout", 0);
  check.require(dropout >= 0 && dropout < 1, "ATTRIBUTE_OUT_OF_RANGE", "dropout",
                std::to_string(dropout) + " is out of range, expected 0 or more and less than 1");
  check.require((dropout > 0) == c.has_input(step), "INPUT_COUNT_INVALID", "step",
                "must be given with dropout, and only then");
  check.dtype(step, DType::kI64).shape(step, {1});
  check.int_in("stream", 0, 0, std::numeric_limits<uint32_t>::max());
}

/// Checks what limits the keys that a query sees; positions and key counts are inputs `positions`
/// and the one after it.
void check_seen_keys(OpChecks& check, const InferContext& c, int64_t positions) {
  check.int_in("is_causal", 0, 0, 1).int_in("cached", 0, 0, 1);
  check.int_in("window", 0, 0, Shape::kElementsMax);
  const bool is_causal = c.attributes().get_int("is_causal", 0) != 0;
  const bool is_cached = c.attributes().get_int("cached", 0) != 0;
  check.require(is_causal || c.attributes().get_int("window", 0) == 0, "ATTRIBUTE_OUT_OF_RANGE",
                "window", "needs is_causal, expected 0 without it");
  check.require(is_causal || !c.has_input(positions), "INPUT_COUNT_INVALID", "positions",
                "need is_causal, expected none without it");
  check.require(!is_cached || c.has_input(positions), "INPUT_COUNT_INVALID", "positions",
                "must be given with cached");
  check.require(!is_causal || !c.has_input(positions + 1), "INPUT_COUNT_INVALID", "key_counts",
                "are only for attention that is not causal, expected none with is_causal");
  check.dtype(positions, DType::kI32).dtype(positions + 1, DType::kI32);
}

/// Checks query, which is input `first`, and the inputs after it: key, value, step, positions and
/// key counts.
void check_operands(OpChecks& check, const InferContext& c, int64_t first) {
  check.float_type(first).rank(first, 3).not_empty(first);
  for (int64_t i = first + 1; i < first + 3; ++i) {
    check.same_dtype(i, first).rank(i, 3).not_empty(i);
  }
  check.require(c.has_input(first + 1) == c.has_input(first + 2), "INPUT_COUNT_INVALID", "value",
                "expected key and value, or neither of them");
  check.int_in("q_num_heads", 0, 1, kHeadsMax);
  check.int_in("kv_num_heads", c.attributes().get_int("q_num_heads", 1), 1, kHeadsMax);
  const double scale = c.attributes().get_float("scale", 1);
  check.require(scale > 0 && std::isfinite(scale), "ATTRIBUTE_OUT_OF_RANGE", "scale",
                std::to_string(scale) + " is out of range, expected a number above 0");
  check_drawn(check, c, first + 3);
  check_seen_keys(check, c, first + 4);
  if (!check.ok()) return;
  const Shape& q = c.input(first).shape;
  const bool packed = !c.has_input(first + 1);
  const Heads heads(c.attributes());
  check.require(heads.query % heads.kv == 0, "ATTRIBUTE_OUT_OF_RANGE", "kv_num_heads",
                std::to_string(heads.kv) + " does not divide q_num_heads, " +
                    std::to_string(heads.query) + ", expected a divisor of it");
  const int64_t parts = heads.in_query(packed);
  check.require(q[2] % parts == 0, "SHAPE_MISMATCH", "q_num_heads",
                "the width " + std::to_string(q[2]) + " of query " + q.to_string() +
                    " is not a multiple of the heads" +
                    (packed ? " of query, key and value, " : ", ") + std::to_string(parts));
  if (!check.ok()) return;
  const int64_t keys = packed ? q[1] : c.input(first + 1).shape[1];
  check.shape(first + 1, {q[0], keys, q[2] / parts * heads.kv}).same_shape(first + 2, first + 1);
  check.shape(first + 4, {q[0], q[1]}).shape(first + 5, {q[0]});
  const bool is_cached = c.attributes().get_int("cached", 0) != 0;
  check.require(!c.has_input(first + 4) || is_cached || keys == q[1], "SHAPE_MISMATCH", "positions",
                "in documents need as many keys as queries, but there are " + std::to_string(keys) +
                    " and " + std::to_string(q[1]));
}

Shape output_shape(const InferContext& c, int64_t first) {
  const Shape& q = c.input(first).shape;
  const Heads heads(c.attributes());
  const bool packed = !c.has_input(first + 1);
  return {q[0], q[1], q[2] / heads.in_query(packed) * heads.query};
}

Shape log_sum_exp_shape(const InferContext& c, int64_t first) {
  const Shape& q = c.input(first).shape;
  return {q[0], c.attributes().get_int("q_num_heads", 1), q[1]};
}

/// Returns the number of pairs of a query and a key that it sees, in one head of one sequence. With
/// documents or key counts, which are known only when the node runs, it is the most.
int64_t pairs_of(const Attributes& a, int64_t queries, int64_t keys) {
  const int64_t window = a.get_int("window", 0);
  const int64_t seen = window > 0 ? std::min(window, keys) : keys;
  if (a.get_int("is_causal", 0) == 0 || a.get_int("cached", 0) != 0) return queries * seen;
  if (window == 0) return queries * keys / 2;
  const int64_t growing = std::min(queries, seen);  // queries before the window is full
  return growing * (growing + 1) / 2 + (queries - growing) * seen;
}

/// Returns the FLOPs of one product over all pairs of positions.
int64_t pair_flops(const Graph& graph, const Node& node, const Shape& y, TensorId key) {
  const int64_t keys = key == kNoTensor ? y[1] : graph.tensor(key).type.shape[1];
  return 2 * y[0] * y[2] * pairs_of(node.attributes, y[1], keys);
}

class Attention final : public Op {
 public:
  std::string_view type() const override { return "Attention"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"query", "key", "value", "step", "positions", "key_counts"}, 1,
                   attributes_of());
    check_operands(check, c, 0);
    if (!check.ok()) return check.error();
    const DType dtype = c.input(0).dtype;
    return std::vector{TensorType{output_shape(c, 0), dtype},
                       TensorType{log_sum_exp_shape(c, 0), dtype}};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.output(1) != kNoTensor, c.node().name + ": backward needs log_sum_exp");
    std::vector<TensorId> inputs = {c.output(0), c.output(1), c.grad_output(0)};
    const std::vector<TensorId>& operands = c.node().inputs;
    inputs.insert(inputs.end(), operands.begin(), operands.end());
    std::vector<bool> wanted(3);
    for (size_t i = 0; i < std::min(operands.size(), wanted.size()); ++i) {
      wanted[i] = operands[i] != kNoTensor && c.needs_grad(static_cast<int64_t>(i));
    }
    const auto grads =
        c.add("grad", *attention_grad_op(), c.node().attributes, std::move(inputs), wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i]) c.set_grad(static_cast<int64_t>(i), grads[i]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const TensorId key = node.inputs.size() > 1 ? node.inputs[1] : kNoTensor;
    cost.flops = 2 * pair_flops(graph, node, graph.tensor(node.outputs[0]).type.shape, key);
    return cost;
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = {1}, .factors = {0, 1, 2}};
  }
};

class AttentionGrad final : public Op {
 public:
  std::string_view type() const override { return "AttentionGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(
        c, {"y", "log_sum_exp", "dy", "query", "key", "value", "step", "positions", "key_counts"},
        4, attributes_of());
    check_operands(check, c, 3);
    if (!check.ok()) return check.error();
    check.same_dtype(0, 3).shape(0, output_shape(c, 3));
    check.same_dtype(1, 3).shape(1, log_sum_exp_shape(c, 3));
    check.same_dtype(2, 3).same_shape(2, 0);
    if (!check.ok()) return check.error();
    const bool packed = !c.has_input(4);
    // A packed node has no outputs for key and value, so their types do not matter.
    return std::vector{c.input(3), c.input(packed ? 3 : 4), c.input(packed ? 3 : 5)};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    const TensorId key = node.inputs.size() > 4 ? node.inputs[4] : kNoTensor;
    cost.flops = 5 * pair_flops(graph, node, graph.tensor(node.inputs[0]).type.shape, key);
    return cost;
  }
  PrecisionRule precision_rule() const override { return {.factors = {3, 4, 5}}; }
};

}  // namespace

const Op* attention_op() {
  static const Attention op;
  return &op;
}
const Op* attention_grad_op() {
  static const AttentionGrad op;
  return &op;
}

}  // namespace trainyard
