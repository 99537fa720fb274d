#include "src/ops/shards.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "src/ops/all_reduce.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();

/// Names every input `input`, except the first `first` ones, which are only waited for.
OpChecks checks_of(const InferContext& c, std::string_view input, int64_t first,
                   const std::vector<std::string_view>& attributes) {
  std::vector<std::string_view> names(static_cast<size_t>(first), "after");
  names.resize(static_cast<size_t>(c.input_count()), input);
  return {c, std::move(names), 0, attributes};
}

/// Checks that the inputs from `first` on are present and floats.
void check_tensors(OpChecks& check, const InferContext& c, std::string_view input, int64_t first,
                   int64_t count_max) {
  const int64_t count = c.input_count() - first;
  check.require(count >= 1 && count <= count_max, "INPUT_COUNT_INVALID", input,
                std::to_string(count) + " are given, expected 1.." + std::to_string(count_max));
  for (int64_t i = first; i < c.input_count() && check.ok(); ++i) {
    check.require(c.has_input(i), "INPUT_COUNT_INVALID", input, "none may be left out");
    check.float_type(i);
  }
}

bool all_are(std::span<const Spread> spreads, Spread one) {
  return std::ranges::all_of(spreads, [&](Spread spread) { return spread == one; });
}

class ReduceScatterStart final : public Op {
 public:
  std::string_view type() const override { return "ReduceScatterStart"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = checks_of(c, "gradient", 0, {"bucket", kRanks});
    check_tensors(check, c, "gradient", 0, kBucketTensorsMax);
    check.int_in("bucket", -1, 0, kIntMax).int_in(kRanks, 0, 2, kIntMax);
    if (!check.ok()) return check.error();
    std::vector<TensorType> types;
    for (int64_t i = 0; i < c.input_count(); ++i) {
      types.push_back(shard_type(c.input(i), c.attributes().get_int(kRanks, 0)));
    }
    return types;
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    if (!all_are(inputs, Spread::kOwn)) return std::nullopt;
    return std::vector(outputs, Spread::kElements);
  }
  bool starts_other_work() const override { return true; }
};

class ReduceScatterDone final : public Op {
 public:
  std::string_view type() const override { return "ReduceScatterDone"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = checks_of(c, "shard", 1, {"bucket"});
    check_tensors(check, c, "shard", 1, 2 * kBucketTensorsMax);
    check.int_in("bucket", -1, 0, kIntMax);
    check.require(c.input_count() % 2 == 1, "INPUT_COUNT_INVALID", "gradient",
                  "expected as many as shards");
    if (!check.ok()) return check.error();
    std::vector<TensorType> types;
    for (int64_t i = 1; i <= c.input_count() / 2; ++i) types.push_back(c.input(i));
    return types;
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    const std::span all(inputs);
    if (!all_are(all.subspan(1, outputs), Spread::kElements) ||
        !all_are(all.subspan(1 + outputs), Spread::kOwn)) {
      return std::nullopt;
    }
    return std::vector(outputs, Spread::kElements);
  }
  Cost cost(const Graph&, const Node&) const override { return {}; }  // it only waits
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node& node) const override {
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (int64_t i = 0; i < std::ssize(node.outputs); ++i) pairs.emplace_back(i, 1 + i);
    return pairs;
  }
};

class AllGather : public Op {
 public:
  std::vector<int64_t> mutated_inputs(const Node& node) const override {
    std::vector<int64_t> all(node.inputs.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    return all;
  }
};

class AllGatherStart final : public AllGather {
 public:
  std::string_view type() const override { return "AllGatherStart"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = checks_of(c, "parameter", 0, {"bucket", kRanks});
    check_tensors(check, c, "parameter", 0, kIntMax);
    check.int_in("bucket", -1, 0, kIntMax).int_in(kRanks, 0, 2, kIntMax);
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }
  bool starts_other_work() const override { return true; }
};

class AllGatherDone final : public AllGather {
 public:
  std::string_view type() const override { return "AllGatherDone"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = checks_of(c, "parameter", 0, {"buckets"});
    check_tensors(check, c, "parameter", 0, kIntMax);
    check.require(!c.attributes().get_ints("buckets", {}).empty(), "ATTRIBUTE_OUT_OF_RANGE",
                  "buckets", "expected at least one");
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }
  Cost cost(const Graph&, const Node&) const override { return {}; }  // it only waits
};

/// Returns the inverse of flat_shapes(); empty if the numbers are not valid shapes.
std::vector<Shape> shapes_from(const std::vector<int64_t>& flat) {
  std::vector<Shape> shapes;
  for (size_t at = 0; at < flat.size();) {
    const int64_t rank = flat[at++];
    if (rank < 0 || rank > static_cast<int64_t>(flat.size() - at)) return {};
    const auto dims = flat.begin() + static_cast<std::ptrdiff_t>(at);
    if (std::any_of(dims, dims + rank, [](int64_t dim) { return dim < 1; })) return {};
    shapes.emplace_back(std::vector<int64_t>(dims, dims + rank));
    if (!shapes.back().fits()) return {};
    at += static_cast<size_t>(rank);
  }
  return shapes;
}

class GatherShardsStart final : public Op {
 public:
  std::string_view type() const override { return "GatherShardsStart"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = checks_of(c, "shard", 0, {"bucket", kRank, kRanks, "shapes"});
    check_tensors(check, c, "shard", 0, kBucketTensorsMax);
    check.int_in("bucket", -1, 0, kIntMax).int_in(kRanks, 0, 2, kIntMax);
    if (!check.ok()) return check.error();
    const int64_t ranks = c.attributes().get_int(kRanks, 0);
    check.int_in(kRank, -1, 0, ranks - 1);
    const std::vector<Shape> shapes = shapes_from(c.attributes().get_ints("shapes", {}));
    check.require(std::ssize(shapes) == c.input_count(), "ATTRIBUTE_OUT_OF_RANGE", "shapes",
                  "expected one for each shard");
    std::vector<TensorType> types;
    for (int64_t i = 0; i < c.input_count() && check.ok(); ++i) {
      types.push_back({shapes[static_cast<size_t>(i)], c.input(i).dtype});
      check.shape(i, shard_type(types.back(), ranks).shape);
    }
    if (!check.ok()) return check.error();
    return types;
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    if (!all_are(inputs, Spread::kElements)) return std::nullopt;
    return std::vector(outputs, Spread::kOwn);
  }
  bool starts_other_work() const override { return true; }
};

class GatherShardsDone final : public Op {
 public:
  std::string_view type() const override { return "GatherShardsDone"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check = checks_of(c, "whole", 0, {"bucket"});
    check_tensors(check, c, "whole", 0, 2 * kBucketTensorsMax);
    check.int_in("bucket", -1, 0, kIntMax);
    check.require(c.input_count() % 2 == 0, "INPUT_COUNT_INVALID", "shard",
                  "expected as many as whole tensors");
    if (!check.ok()) return check.error();
    std::vector<TensorType> types;
    for (int64_t i = 0; i < c.input_count() / 2; ++i) types.push_back(c.input(i));
    return types;
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    const std::span all(inputs);
    if (!all_are(all.first(outputs), Spread::kOwn) ||
        !all_are(all.subspan(outputs), Spread::kElements)) {
      return std::nullopt;
    }
    return std::vector(outputs, Spread::kOwn);
  }
  Cost cost(const Graph&, const Node&) const override { return {}; }  // it only waits
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node& node) const override {
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (int64_t i = 0; i < std::ssize(node.outputs); ++i) pairs.emplace_back(i, i);
    return pairs;
  }
};

int64_t ranks_of(const Attributes& attributes) { return attributes.get_int(kRanks, 1); }

}  // namespace

const Op* reduce_scatter_start_op() {
  static const ReduceScatterStart op;
  return &op;
}
const Op* reduce_scatter_done_op() {
  static const ReduceScatterDone op;
  return &op;
}
const Op* all_gather_start_op() {
  static const AllGatherStart op;
  return &op;
}
const Op* all_gather_done_op() {
  static const AllGatherDone op;
  return &op;
}

const Op* gather_shards_start_op() {
  static const GatherShardsStart op;
  return &op;
}
const Op* gather_shards_done_op() {
  static const GatherShardsDone op;
  return &op;
}

std::vector<int64_t> flat_shapes(const std::vector<Shape>& shapes) {
  std::vector<int64_t> flat;
  for (const Shape& shape : shapes) {
    flat.push_back(shape.rank());
    flat.insert(flat.end(), shape.dims().begin(), shape.dims().end());
  }
  return flat;
}

TensorType shard_type(const TensorType& type, int64_t ranks) {
  return {{kernels::shard_elements(type.shape.elements(), ranks)}, type.dtype};
}

kernels::ShardRange shard_range(const TensorType& type, int64_t rank, int64_t ranks) {
  return kernels::shard_range(type.shape.elements(), rank, ranks);
}

kernels::ShardRange shard_range_of(const TensorInfo& shard, int64_t rank) {
  const int64_t all = shard.whole_type().shape.elements(), size = shard.type.shape.elements();
  const int64_t first = std::min(all, rank * size);
  return {first, std::min(size, all - first)};
}

ShardElements elements_of_shard(const TensorInfo& shard, int64_t rank) {
  if (shard.shard_axis == 0) {
    const kernels::ShardRange range = shard_range_of(shard, rank);
    return {.runs = 1, .count = range.count, .first = range.first};
  }
  const int64_t columns = shard.whole_type().shape[1], each = shard.type.shape[1];
  const int64_t first = std::min(columns, rank * each);
  return {.runs = shard.type.shape[0],
          .count = std::min(each, columns - first),
          .first = first,
          .step = columns,
          .shard_step = each};
}

kernels::ShardRange updated_range(const Graph& graph, const Node& node) {
  if (updated_rows(graph, node)) {
    return {0, graph.tensor(node.inputs[1]).type.shape.elements()};
  }
  return shard_range(graph.tensor(node.inputs[0]).type, node.attributes.get_int(kRank, 0),
                     ranks_of(node.attributes));
}

void check_updated(OpChecks& check, const InferContext& c, std::span<const int64_t> inputs,
                   int64_t rows) {
  check.int_in(kRanks, 1, 1, kIntMax);
  check.dtype(rows, DType::kI32).rank(rows, 1);
  if (!check.ok()) return;
  const int64_t ranks = ranks_of(c.attributes());
  check.int_in(kRank, 0, 0, ranks - 1);
  const bool by_rows = c.has_input(rows);
  check.require(!by_rows || ranks == 1, "ATTRIBUTE_OUT_OF_RANGE", kRanks,
                "expected 1 where rows are updated");
  check.rank_at_least(0, by_rows ? 1 : 0);
  if (!check.ok()) return;
  for (const int64_t i : inputs) {
    check.same_dtype(i, 0);
    if (by_rows && i == *inputs.begin()) {
      std::vector<int64_t> dims = c.input(0).shape.dims();
      dims[0] = c.input(rows).shape[0];
      check.shape(i, Shape(std::move(dims)));
    } else if (ranks == 1) {
      check.same_shape(i, 0);
    } else {
      check.shape(i, shard_type(c.input(0), ranks).shape);
    }
  }
}

std::optional<std::vector<Spread>> spread_updated(const std::vector<Spread>& inputs,
                                                  std::span<const int64_t> parts) {
  const Spread of = inputs[1];
  const bool is_shard_of_whole = inputs[0] == Spread::kOwn && of == Spread::kElements;
  if (of != inputs[0] && !is_shard_of_whole) return std::nullopt;
  if (of != Spread::kOwn && !is_part(of)) return std::nullopt;
  for (size_t i = 1; i < inputs.size(); ++i) {
    const bool is_part = std::ranges::find(parts, static_cast<int64_t>(i)) != parts.end();
    // An input that is left out counts as kOwn.
    const bool fits = inputs[i] == of || (inputs[i] == Spread::kOwn && i > 1);
    if (!(is_part ? fits : inputs[i] == Spread::kOwn)) return std::nullopt;
  }
  return std::vector<Spread>{};
}

std::optional<std::vector<Spread>> spread_equally(const std::vector<Spread>& inputs) {
  constexpr int64_t kGradient[] = {1};
  return inputs[0] == inputs[1] ? spread_updated(inputs, kGradient) : std::nullopt;
}

Cost update_cost(const Op& op, const Graph& graph, const Node& node, int64_t flops_per_element) {
  const TensorType& p = graph.tensor(node.inputs[0]).type;
  if (const auto rows = updated_rows(graph, node)) {
    const TensorType& g = graph.tensor(node.inputs[1]).type;
    Cost cost{flops_per_element * g.shape.elements(),
              g.bytes() + graph.tensor(node.inputs[*rows]).type.bytes()};
    for (const int64_t i : op.mutated_inputs(node)) {  // read and written, but only these rows
      const auto at = static_cast<size_t>(i);
      if (at < node.inputs.size() && node.inputs[at] != kNoTensor) cost.bytes += 2 * g.bytes();
    }
    return cost;
  }
  const int64_t ranks = ranks_of(node.attributes);
  // All ranks have the same plan, so the cost is that of a full shard on each.
  const TensorType updated = ranks == 1 ? p : shard_type(p, ranks);
  Cost cost = op.Op::cost(graph, node);
  cost.bytes -= 2 * (p.bytes() - updated.bytes());    // both read and written
  if (const auto copy = written_copy(graph, node)) {  // written, but not read
    cost.bytes -= graph.tensor(node.inputs[*copy]).stored_bytes();
  }
  cost.flops = flops_per_element * updated.shape.elements();
  return cost;
}

}  // namespace trainyard
