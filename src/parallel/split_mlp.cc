#include "src/parallel/split_mlp.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "src/graph/op.h"
#include "src/models/lora.h"
#include "src/ops/activation.h"
#include "src/ops/add.h"
#include "src/ops/dropout.h"
#include "src/ops/gemm.h"
#include "src/ops/reshape.h"
#include "src/ops/row_exchange.h"
#include "src/ops/shards.h"
#include "src/parallel/model_copy.h"

namespace trainyard {
namespace {

// Exchange numbers (src/ops/shards.h), after those of a split head. Each pair uses four: two
// exchanges, and the gradient of each with the next number.
constexpr int64_t kFirstExchange = (int64_t{1} << 30) + 16, kExchangesOfPair = 4,
                  kScatterExchange = 2;

Error refuse_mlp(const std::string& why) {
  return field_error("FIELD_CONFLICT", "resources.shard",
                     "mlp " + why + ", expected shard: optimizer or none");
}

constexpr int64_t units_of_rank(int64_t units, int64_t ranks) {
  return (units + ranks - 1) / ranks;
}

struct Pair {
  NodeId first = kNoNode, second = kNoNode;
  std::vector<NodeId> reshapes = {};  // reshapes between the two layers, which the split pair omits
  std::vector<NodeId> activations = {}, dropouts = {};
};

/// Returns whether the activation maps 0 to 0 and has a finite gradient there, so that the padding
/// units of a rank's shard stay 0.
bool keeps_zero(const Op& op) {
  constexpr std::array<std::string_view, 14> kThose = {
      "Relu",     "Tanh",      "Gelu",  "LeakyRelu",       "Elu", "Selu", "Celu", "Mish",
      "Softsign", "HardSwish", "Swish", "ThresholdedRelu", "Neg", "Abs"};
  return std::ranges::find(kThose, op.type()) != kThose.end();
}

class PairFinder {
 public:
  PairFinder(const Model& model, Rank rank)
      : graph_(model.graph), rank_(rank), readers_(readers_of(model.graph)) {}

  /// Returns all pairs in graph order for which `is_chosen` returns true.
  template <typename F>
  std::vector<Pair> find(const F& is_chosen) const {
    std::vector<Pair> pairs;
    std::set<NodeId> taken;
    for (NodeId k = 0; k < std::ssize(graph_.nodes()); ++k) {
      if (taken.contains(k) || !is_dense(k)) continue;
      std::optional<Pair> pair = pair_from(k);
      if (!pair.has_value() || !is_chosen(*pair)) continue;
      taken.insert(pair->second);
      pairs.push_back(std::move(*pair));
    }
    return pairs;
  }

 private:
  /// Returns whether node `k` is a dense layer with unshared, unsharded weights that runs on this
  /// rank's rows.
  bool is_dense(NodeId k) const {
    const Node& node = graph_.node(k);
    if (node.op != gemm_op() || graph_.tensor(node.inputs[0]).spread != Spread::kOwn) return false;
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoTensor) continue;
      const TensorInfo& w = graph_.tensor(node.inputs[i]);
      const bool is_own = readers_[static_cast<size_t>(node.inputs[i])].size() == 1;
      const bool is_whole = w.spread == Spread::kOwn && !w.shard_of.has_value();
      if (w.role != Role::kParameter || !is_own || !is_whole || is_lora(w.name)) return false;
    }
    return true;
  }
  bool is_marked(TensorId id) const {
    return std::ranges::find(graph_.outputs(), id) != graph_.outputs().end();
  }
  std::optional<Pair> pair_from(NodeId first) const {
    Pair pair{.first = first};
    const TensorId units = graph_.node(first).outputs[0];
    TensorId at = units;
    while (true) {
      const std::vector<NodeId>& readers = readers_[static_cast<size_t>(at)];
      if (readers.size() != 1 || is_marked(at)) return std::nullopt;
      const NodeId k = readers.front();
      const Node& node = graph_.node(k);
      if (node.op == gemm_op()) {
        const bool fits = node.inputs[0] == at && is_dense(k) && !pair.activations.empty() &&
                          graph_.tensor(at).type == graph_.tensor(units).type;
        if (!fits || !can_be_cut(pair)) return std::nullopt;
        pair.second = k;
        return pair;
      }
      if (node.op == reshape_op()) {
        pair.reshapes.push_back(k);
      } else if (is_activation(*node.op)) {
        pair.activations.push_back(k);
      } else if (node.op == dropout_op() && node.inputs[0] == at) {
        pair.dropouts.push_back(k);
      } else {
        return std::nullopt;
      }
      at = node.outputs[0];
    }
  }
  /// Returns whether the pair can be sharded by unit: padding units must stay 0, and dropout must
  /// draw the same values for a unit as on one device.
  bool can_be_cut(const Pair& pair) const {
    const int64_t units = graph_.tensor(graph_.node(pair.first).outputs[0]).type.shape[1];
    const bool are_drawn_alike = units % kUnitsDrawnTogether == 0 &&
                                 units_of_rank(units, rank_.count) % kUnitsDrawnTogether == 0;
    if (!pair.dropouts.empty() && !are_drawn_alike) return false;
    return units % rank_.count == 0 || std::ranges::all_of(pair.activations, [&](NodeId k) {
             return keeps_zero(*graph_.node(k).op);
           });
  }

  const Graph& graph_;
  const Rank rank_;
  const std::vector<std::vector<NodeId>> readers_;  // by tensor
};

/// The memory that a split saves and costs, in elements (see split_mlp()).
struct Weighing {
  int64_t kept = 0, rows = 0;  // of weights with gradients and state; of gathered rows
};
Weighing weigh(const Graph& graph, const Pair& pair, Rank rank, int64_t copies) {
  int64_t weights = 0;
  for (const NodeId k : {pair.first, pair.second}) {
    const std::vector<TensorId>& inputs = graph.node(k).inputs;
    // The second layer's bias is not sharded.
    const size_t end = k == pair.first ? inputs.size() : 2;
    for (size_t i = 1; i < end; ++i) {
      if (inputs[i] != kNoTensor) weights += graph.tensor(inputs[i]).type.shape.elements();
    }
  }
  const Shape& x = graph.tensor(graph.node(pair.first).inputs[0]).type.shape;
  const Shape& y = graph.tensor(graph.node(pair.second).outputs[0]).type.shape;
  return {copies * weights, x[0] * rank.count * (2 * x[1] + y[1])};
}

/// Copies the model with the pairs split.
class PairSplitter final : private ModelCopy {
 public:
  PairSplitter(const Model& model, const std::vector<Pair>& pairs, Rank rank)
      : ModelCopy(model), rank_(rank) {
    for (const Pair& pair : pairs) {
      const std::vector<TensorId>& first = graph_.node(pair.first).inputs;
      for (size_t i = 1; i < first.size(); ++i) {
        if (first[i] != kNoTensor) axis_[first[i]] = 0;
      }
      axis_[graph_.node(pair.second).inputs[1]] = 1;
      firsts_.insert(pair.first);
      seconds_.insert(pair.second);
      reshapes_.insert(pair.reshapes.begin(), pair.reshapes.end());
      const int64_t units = graph_.tensor(graph_.node(pair.first).outputs[0]).type.shape[1];
      for (const NodeId k : pair.dropouts) dropouts_[k] = units;
    }
  }

  Model run() {
    copy_sources();
    for (NodeId k = 0; k < std::ssize(graph_.nodes()); ++k) {
      const Node& node = graph_.node(k);
      if (firsts_.contains(k)) {
        add_first(node);
      } else if (seconds_.contains(k)) {
        add_second(node);
      } else if (dropouts_.contains(k)) {
        add_dropout(k);
      } else if (reshapes_.contains(k)) {
        copies_[node.outputs[0]] = copies_.at(node.inputs[0]);
      } else {
        copy(k);
      }
    }
    return finish();
  }

 private:
  TensorInfo info_of(TensorId id) const override {
    TensorInfo info = graph_.tensor(id);
    const auto axis = axis_.find(id);
    if (axis == axis_.end()) return info;
    std::vector<int64_t> dims = info.type.shape.dims();
    int64_t& units = dims[static_cast<size_t>(axis->second)];
    units = units_of_rank(units, rank_.count);
    info.shard_of = info.type.shape;
    info.shard_axis = axis->second;
    info.type.shape = Shape(std::move(dims));
    info.spread = Spread::kUnits;
    return info;
  }

  void add_first(const Node& node) {
    std::vector<TensorId> inputs = add(node.name + "/gather", *gather_rows_op(),
                                       {{"bucket", next_exchange_}, {kRanks, rank_.count}},
                                       {copies_.at(node.inputs[0])}, {node.name + "/rows"});
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoTensor) inputs.push_back(copies_.at(node.inputs[i]));
    }
    copies_[node.outputs[0]] = add(node.name, *node.op, node.attributes, std::move(inputs),
                                   {graph_.tensor(node.outputs[0]).name})[0];
    exchange_of_pair_.push_back(next_exchange_);
    next_exchange_ += kExchangesOfPair;
  }

  /// Adds dropout on the rows of all ranks, with draws at the same positions as on one device.
  void add_dropout(NodeId k) {
    const Node& node = graph_.node(k);
    const int64_t units = dropouts_.at(k);
    Attributes attributes = node.attributes;
    attributes.set(kDrawnUnits, units);
    const int64_t first = rank_.index * units_of_rank(units, rank_.count);
    attributes.set(kFirstDrawnUnit, std::min(units, first));
    copies_[node.outputs[0]] = add(node.name, *node.op, std::move(attributes),
                                   {copies_.at(node.inputs[0]), copies_.at(node.inputs[1])},
                                   {graph_.tensor(node.outputs[0]).name})[0];
  }

  void add_second(const Node& node) {
    const std::string& name = graph_.tensor(node.outputs[0]).name;
    const bool has_bias = node.inputs.size() > 2 && node.inputs[2] != kNoTensor;
    const TensorId summand =
        add(node.name, *node.op, node.attributes,
            {copies_.at(node.inputs[0]), copies_.at(node.inputs[1])}, {name + "/summand"})[0];
    TensorId y = add(node.name + "/scatter", *scatter_rows_op(),
                     {{"bucket", exchange_of_pair_[added_++] + kScatterExchange},
                      {kRanks, rank_.count},
                      {"factor", 1.0}},
                     {summand}, {has_bias ? name + "/product" : name})[0];
    if (has_bias) {
      y = add(node.name + "/bias", *add_op(), {}, {y, copies_.at(node.inputs[2])}, {name})[0];
    }
    copies_[node.outputs[0]] = y;
  }

  const Rank rank_;
  std::map<TensorId, int64_t> axis_;  // the axis along which a weight is sharded
  std::set<NodeId> firsts_, seconds_, reshapes_;
  std::map<NodeId, int64_t> dropouts_;  // dropout node -> number of units of its pair
  int64_t next_exchange_ = kFirstExchange;
  std::vector<int64_t> exchange_of_pair_;
  size_t added_ = 0;
};

SplitPair describe(const Graph& graph, const Pair& pair) {
  const Node &first = graph.node(pair.first), &second = graph.node(pair.second);
  SplitPair described{first.name, second.name, {}, graph.tensor(first.outputs[0]).type.shape[1]};
  for (size_t i = 1; i < first.inputs.size(); ++i) {
    if (first.inputs[i] != kNoTensor) {
      described.weights.push_back(graph.tensor(first.inputs[i]).name);
    }
  }
  described.weights.push_back(graph.tensor(second.inputs[1]).name);
  return described;
}

}  // namespace

Result<SplitMlp> split_mlp(const Model& model, Rank rank, int64_t copies) {
  std::optional<Pair> closest;
  Weighing of_closest;
  const std::vector<Pair> pairs = PairFinder(model, rank).find([&](const Pair& pair) {
    const Weighing weighed = weigh(model.graph, pair, rank, copies);
    if (!closest || weighed.kept - weighed.rows > of_closest.kept - of_closest.rows) {
      closest = pair;
      of_closest = weighed;
    }
    return weighed.kept > weighed.rows;
  });
  if (!closest) {
    return refuse_mlp(
        "splits pairs of gemm or linear layers with only activations and dropout between them, "
        "whose weights no other layer and no recipe.lora uses, and the model has none");
  }
  if (pairs.empty()) {
    return refuse_mlp("would save no memory: " + layer_of(model.graph.node(closest->first).name) +
                      " and " + layer_of(model.graph.node(closest->second).name) +
                      ", which come closest, have " + std::to_string(of_closest.kept) +
                      " weights, gradients and state values, but " +
                      std::to_string(of_closest.rows) +
                      " values of rows would have to be gathered from other ranks; a smaller "
                      "recipe.batch_size or more recipe.accumulate_steps makes the rows fewer");
  }
  SplitMlp split;
  for (const Pair& pair : pairs) split.pairs.push_back(describe(model.graph, pair));
  split.model = PairSplitter(model, pairs, rank).run();
  return split;
}

Model split_mlp(const Model& model, Rank rank, const std::vector<SplitPair>& pairs) {
  const std::vector<Pair> found = PairFinder(model, rank).find([&](const Pair& pair) {
    return std::ranges::find(pairs, describe(model.graph, pair)) != pairs.end();
  });
  TRAINYARD_CHECK(found.size() == pairs.size(), "a model that evaluates has other pairs of layers");
  return PairSplitter(model, found, rank).run();
}

std::string layer_of(std::string_view node_name) {
  constexpr std::string_view kProduct = "/product";
  if (node_name.ends_with(kProduct)) node_name.remove_suffix(kProduct.size());
  return std::string(node_name);
}

int64_t kept_copies(const Recipe& recipe) {
  const OptimizerSpec& o = recipe.optimizer;
  int64_t copies = 2 + (recipe.ema_decay > 0 ? 1 : 0);
  if (o.type == "adam" || o.type == "adamw") copies += 2;
  if (o.type == "lion") copies += 1;
  if (o.type == "rmsprop") copies += 1 + (o.centered ? 1 : 0);
  if ((o.type == "sgd" || o.type == "rmsprop") && o.momentum > 0) copies += 1;
  return copies;
}

}  // namespace trainyard
