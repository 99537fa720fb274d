#include "src/ops/optimizer_update.h"

#include <algorithm>
#include <deque>

#include "src/ops/shape_helpers.h"
#include "src/ops/shards.h"

namespace trainyard {
namespace {

using Names = std::vector<std::string_view>;

struct UpdateRow {
  std::string_view type;
  Names inputs;                // the inputs after p, g and learning_rate, and before rows
  int64_t required = 0;        // how many of `inputs` are required
  Names attributes;            // in addition to weight_decay and rate_factor
  std::vector<int64_t> state;  // indices of the updated inputs, in addition to p
  /// Additional checks of this op. All ops check g, learning_rate, step, and state that is like p.
  void (*check)(OpChecks&, const InferContext&) = nullptr;
  int64_t flops = 0;  // per element, for the forecast of costs; 0: flops_of computes it
  int64_t (*flops_of)(const Shape& p, const Attributes&) = nullptr;
  bool supports_shards = true;  // accepts shards and the inputs rows and copy
  bool state_is_like_p = true;  // state has p's type and shape
};

/// Attribute `momentum` and its state, input `input`, must be given together.
void check_momentum(OpChecks& check, const InferContext& c, int64_t input, const char* text) {
  check.require((c.attributes().get_float("momentum", 0) != 0) == c.has_input(input),
                "ATTRIBUTE_OUT_OF_RANGE", "momentum", text);
}

/// The copy follows the rows, and is one of the whole parameter.
void check_copy(OpChecks& check, const InferContext& c, int64_t rows) {
  const int64_t copy = rows + 1;
  check.same_dtype(copy, 0).same_shape(copy, 0);
  const bool is_partial = c.has_input(rows) || c.attributes().get_int(kRanks, 1) > 1;
  check.require(!c.has_input(copy) || !is_partial, "INPUT_COUNT_INVALID", "copy",
                "must be left out where rows or a shard are updated");
}

void check_sgd(OpChecks& check, const InferContext& c) {
  check.int_in("nesterov", 0, 0, 1);
  if (check.ok()) check_momentum(check, c, 3, "and the input v must be given together");
}

void check_rmsprop(OpChecks& check, const InferContext& c) {
  check_momentum(check, c, 5, "and the input momentum_buffer must be given together");
}

void check_adafactor(OpChecks& check, const InferContext& c) {
  check.rank_at_least(0, 1);
  if (!check.ok()) return;
  const FactoredShapes shapes = factored_shapes(c.input(0).shape);
  check.same_dtype(4, 0).shape(4, shapes.column).same_dtype(5, 0).shape(5, shapes.row);
  if (!check.ok()) return;
  check.require(c.has_input(5) == (c.input(0).shape.rank() > 1), "INPUT_COUNT_INVALID", "row",
                "must be given for matrices, and only for these");
}

void check_muon(OpChecks& check, const InferContext&) {
  check.rank(0, 2);
  check.int_in("nesterov", 1, 0, 1).int_in("match_adamw", 0, 0, 1).int_in("iterations", 5, 1, 99);
}

int64_t muon_flops(const Shape& p, const Attributes& a) {
  const int64_t side = std::min(p[0], p[1]), length = std::max(p[0], p[1]);
  const int64_t iteration = 2 * side * side * (2 * length + side) + 3 * side * (side + length);
  return a.get_int("iterations", 5) * iteration + 10 * side * length;
}

int64_t adafactor_flops(const Shape& p, const Attributes&) { return 20 * p.elements(); }

const std::vector<UpdateRow>& update_rows() {
  const Names betas = {"beta1", "beta2"};
  const Names adam = {"beta1", "beta2", "epsilon"};
  static const std::vector<UpdateRow> table = {
      {"SgdUpdate", {"v"}, 0, {"momentum", "nesterov"}, {3}, check_sgd, 6},
      {"AdamUpdate", {"step", "m", "v"}, 3, adam, {4, 5}, nullptr, 14},
      {"AdamWUpdate", {"step", "m", "v"}, 3, adam, {4, 5}, nullptr, 14},
      {"RmspropUpdate",
       {"square", "grad_avg", "momentum_buffer"},
       1,
       {"alpha", "epsilon", "momentum"},
       {3, 4, 5},
       check_rmsprop,
       14},
      {"LionUpdate", {"m"}, 1, betas, {3}, nullptr, 9},
      {"AdafactorUpdate",
       {"step", "column", "row"},
       2,
       {"beta2_decay", "epsilon", "scale_min", "clip_threshold"},
       {4, 5},
       check_adafactor,
       0,
       adafactor_flops,
       false,
       false},
      {"MuonUpdate",
       {"m"},
       1,
       {"momentum", "nesterov", "iterations", "match_adamw"},
       {3},
       check_muon,
       0,
       muon_flops,
       false},
  };
  return table;
}

class OptimizerUpdate final : public Op {
 public:
  explicit OptimizerUpdate(const UpdateRow& row) : row_(row) {
    inputs_.insert(inputs_.end(), row.inputs.begin(), row.inputs.end());
    attributes_ = row.attributes;
    attributes_.insert(attributes_.end(), {"weight_decay", "rate_factor"});
    if (!row.supports_shards) return;
    inputs_.insert(inputs_.end(), {"rows", "copy"});
    attributes_.insert(attributes_.end(), {kRank, kRanks});
  }
  std::string_view type() const override { return row_.type; }
  std::optional<size_t> copy() const {
    return row_.supports_shards ? std::optional(inputs_.size() - 1) : std::nullopt;
  }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, inputs_, 3 + row_.required, attributes_);
    check.float_type(0).dtype(2, DType::kF32).shape(2, {1});
    if (row_.inputs[0] == "step") check.dtype(3, DType::kI64).shape(3, {1});
    if (!check.ok()) return check.error();
    std::vector<int64_t> alike = {1};
    if (row_.state_is_like_p) alike.insert(alike.end(), row_.state.begin(), row_.state.end());
    if (row_.supports_shards) {
      const int64_t rows = std::ssize(inputs_) - 2;
      check_updated(check, c, alike, rows);
      if (check.ok()) check_copy(check, c, rows);
    } else {
      for (const int64_t i : alike) check.same_dtype(i, 0).same_shape(i, 0);
    }
    if (check.ok() && row_.check != nullptr) row_.check(check, c);
    if (!check.ok()) return check.error();
    return std::vector<TensorType>{};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    if (row_.flops_of == nullptr) return update_cost(*this, graph, node, row_.flops);
    Cost cost = Op::cost(graph, node);
    cost.flops = row_.flops_of(graph.tensor(node.inputs[0]).type.shape, node.attributes);
    return cost;
  }
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    if (!row_.supports_shards) return Op::spread(inputs, outputs);
    std::vector<int64_t> parts = {1};
    parts.insert(parts.end(), row_.state.begin(), row_.state.end());
    return spread_updated(inputs, parts);
  }
  std::vector<int64_t> mutated_inputs(const Node& node) const override {
    std::vector<int64_t> all = {0};
    all.insert(all.end(), row_.state.begin(), row_.state.end());
    if (copy().has_value() && node.inputs.size() > *copy()) {
      all.push_back(static_cast<int64_t>(*copy()));
    }
    return all;
  }

 private:
  const UpdateRow& row_;
  Names inputs_ = {"p", "g", "learning_rate"};
  Names attributes_;
};

}  // namespace

std::span<const Op* const> optimizer_update_ops() {
  static const std::vector<const Op*> ops = [] {
    static std::deque<OptimizerUpdate> updates;  // a deque never moves its elements
    std::vector<const Op*> all;
    for (const UpdateRow& row : update_rows()) all.push_back(&updates.emplace_back(row));
    return all;
  }();
  return ops;
}

std::optional<size_t> copy_input(const Op& op) {
  const auto* const update = dynamic_cast<const OptimizerUpdate*>(&op);
  return update == nullptr ? std::nullopt : update->copy();
}

FactoredShapes factored_shapes(const Shape& parameter) {
  std::vector<int64_t> dims(parameter.dims().begin(), parameter.dims().end());
  if (dims.size() < 2) return {Shape(), parameter};
  const int64_t columns = dims.back();
  dims.pop_back();
  FactoredShapes shapes;
  shapes.row = Shape(dims);
  dims.back() = columns;
  shapes.column = Shape(dims);
  return shapes;
}

}  // namespace trainyard
