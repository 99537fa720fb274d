#include "src/ops/mat_mul.h"

#include <algorithm>
#include <optional>

#include "src/ops/shape_helpers.h"
#include "src/ops/tf32.h"

namespace trainyard {
namespace {

using Dims = std::vector<int64_t>;

// Returns the dimensions of an operand as matrices: a vector is a row on the left and a column on
// the right.
Dims left_dims(const Shape& a) { return a.rank() == 1 ? Dims{1, a[0]} : a.dims(); }
Dims right_dims(const Shape& b) { return b.rank() == 1 ? Dims{b[0], 1} : b.dims(); }

/// Returns the batch dimensions to which both are broadcast, or nothing if they do not broadcast.
std::optional<Dims> batch_dims(const Dims& a, const Dims& b) {
  Dims batch(std::max(a.size(), b.size()) - 2, 1);
  for (const Dims* dims : {&a, &b}) {
    const size_t offset = batch.size() + 2 - dims->size();
    for (size_t i = 0; i + 2 < dims->size(); ++i) {
      int64_t& size = batch[offset + i];
      if (size != 1 && (*dims)[i] != 1 && size != (*dims)[i]) return std::nullopt;
      size = std::max(size, (*dims)[i]);
    }
  }
  return batch;
}

/// Returns the index of the matrix in an operand of dimensions `dims` that product `p` of the batch
/// reads.
int64_t matrix_of(const Dims& dims, const Dims& batch, int64_t p) {
  const size_t offset = batch.size() + 2 - dims.size();
  int64_t index = 0, step = 1;
  for (size_t i = batch.size(); i-- > 0;) {
    const int64_t position = p % batch[i];
    p /= batch[i];
    if (i < offset) continue;
    const int64_t size = dims[i - offset];
    if (size > 1) index += position * step;
    step *= size;
  }
  return index;
}

int64_t product(const Dims& dims, size_t count) {
  int64_t n = 1;
  for (size_t i = 0; i < count; ++i) n *= dims[i];
  return n;
}

void check_operands(OpChecks& check, const InferContext& c) {
  check.float_type(0).rank_at_least(0, 1).not_empty(0);
  check.same_dtype(1, 0).rank_at_least(1, 1).not_empty(1);
  if (!check.ok()) return;
  const Shape &sa = c.input(0).shape, &sb = c.input(1).shape;
  const Dims a = left_dims(sa), b = right_dims(sb);
  check.require(a.back() == b[b.size() - 2], "SHAPE_MISMATCH", "b",
                "shape " + sb.to_string() + " has " + std::to_string(b[b.size() - 2]) +
                    " rows, expected " + std::to_string(a.back()) + ", the columns of a " +
                    sa.to_string());
  check.require(batch_dims(a, b).has_value(), "SHAPE_MISMATCH", "b",
                "shape " + sb.to_string() + " cannot be broadcast with a " + sa.to_string() +
                    ": expected equal sizes or 1 before the last two dimensions");
}

Shape result_shape(const Shape& sa, const Shape& sb) {
  const Dims a = left_dims(sa), b = right_dims(sb);
  Dims dims = *batch_dims(a, b);
  if (sa.rank() > 1) dims.push_back(a[a.size() - 2]);
  if (sb.rank() > 1) dims.push_back(b.back());
  if (dims.empty())
    dims.push_back(1);  // a dot product of vectors: a single number has shape [1] here
  return Shape(std::move(dims));
}

int64_t matmul_flops(const Graph& graph, const Node& node) {
  const auto d = mat_mul_batch(graph.tensor(node.inputs[0]).type.shape,
                               graph.tensor(node.inputs[1]).type.shape);
  return 2 * d.M * d.N * d.K * static_cast<int64_t>(d.a_of.size());
}

class MatMul final : public Op {
 public:
  std::string_view type() const override { return "MatMul"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"a", "b"}, 2, {kTf32Attribute});
    check_operands(check, c);
    if (!check.ok()) return check.error();
    return std::vector{
        TensorType{result_shape(c.input(0).shape, c.input(1).shape), c.input(0).dtype}};
  }
  void differentiate(GradientContext& c) const override {
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1)};
    const auto grads =
        c.add("grad", *mat_mul_grad_op(), {}, {c.input(0), c.input(1), c.grad_output(0)}, wanted);
    for (int64_t i = 0; i < 2; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    cost.flops = matmul_flops(graph, node);
    return cost;
  }
  PrecisionRule precision_rule() const override { return {.factors = {0, 1}}; }
};

class MatMulGrad final : public Op {
 public:
  std::string_view type() const override { return "MatMulGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"a", "b", "dc"}, 3, {kTf32Attribute});
    check_operands(check, c);
    if (!check.ok()) return check.error();
    check.same_dtype(2, 0).shape(2, result_shape(c.input(0).shape, c.input(1).shape));
    if (!check.ok()) return check.error();
    return std::vector{c.input(0), c.input(1)};
  }
  Cost cost(const Graph& graph, const Node& node) const override {
    Cost cost = Op::cost(graph, node);
    for (const TensorId id : node.outputs) {
      if (id != kNoTensor) cost.flops += matmul_flops(graph, node);
    }
    return cost;
  }
  PrecisionRule precision_rule() const override { return {.factors = {0, 1}}; }
};

}  // namespace

kernels::MatMulBatch mat_mul_batch(const Shape& sa, const Shape& sb) {
  const Dims a = left_dims(sa), b = right_dims(sb);
  kernels::MatMulBatch d;
  d.M = a[a.size() - 2];
  d.K = a.back();
  d.N = b.back();
  d.a_count = product(a, a.size() - 2);
  d.b_count = product(b, b.size() - 2);
  if (d.b_count == 1) {
    d.M *= d.a_count;
    d.a_count = 1;
    d.a_of = d.b_of = {0};
    return d;
  }
  const Dims batch = *batch_dims(a, b);
  const int64_t count = product(batch, batch.size());
  for (int64_t p = 0; p < count; ++p) {
    d.a_of.push_back(matrix_of(a, batch, p));
    d.b_of.push_back(matrix_of(b, batch, p));
  }
  return d;
}

const Op* mat_mul_op() {
  static const MatMul op;
  return &op;
}
const Op* mat_mul_grad_op() {
  static const MatMulGrad op;
  return &op;
}

}  // namespace trainyard
