#include "src/parallel/sparse_lookup.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "src/base/text.h"
#include "src/graph/op.h"
#include "src/ops/distinct_rows.h"
#include "src/ops/row_exchange.h"
#include "src/ops/sampled_xent.h"
#include "src/ops/shards.h"
#include "src/optim/optimizer.h"
#include "src/parallel/model_copy.h"

namespace trainyard {
namespace {

/// Changes one graph. New nodes are appended to it; apply() moves them before their lookup.
class Lookups {
 public:
  Lookups(Model& model, Rank rank, int64_t micro_batches)
      : graph_(model.graph), rank_(rank), micro_batches_(micro_batches), nodes_(graph_.nodes()) {}

  GatheredRows take(NodeId k) {
    Node& lookup = nodes_[static_cast<size_t>(k)];
    const TensorId table = lookup.inputs[0], indices = lookup.inputs[1];
    const TensorType type = graph_.tensor(table).type;
    const std::string name = lookup.name + "/distinct";
    const TensorId counted =
        rank_.count == 1 ? kNoTensor
                         : add(k, lookup.name + "/indices", *gather_rows_op(),
                               {{"bucket", rows_exchange(++exchanges_)}, {kRanks, rank_.count}},
                               {indices}, {lookup.name + "/indices"})[0];
    const int64_t size = distinct_rows_size(
        type.shape[0], graph_.tensor(indices).type.shape.elements() * rank_.count, micro_batches_);
    const KeptRows kept =
        add_kept_rows(graph_, graph_.tensor(table).name + ".rows", size, micro_batches_);
    const std::vector<TensorId> found = add(
        k, name, *distinct_rows_op(), {{"table", type.shape[0]}, {"micro_batches", micro_batches_}},
        {indices, counted, kept.kept, kept.micro_step}, {name + ".rows", name + ".position"});
    const std::string rows = graph_.tensor(table).name + "/rows";
    const TensorId gathered = add(k, rows, *take_rows_op(), {}, {table, found[0]}, {rows})[0];
    lookup.inputs = {gathered, found[1]};
    return {gathered, kept.kept == kNoTensor ? found[0] : kept.kept};
  }

  void apply() {
    std::vector<Node> nodes;
    for (size_t k = 0; k < nodes_.size(); ++k) {
      for (Node& before : before_[static_cast<NodeId>(k)]) nodes.push_back(std::move(before));
      nodes.push_back(std::move(nodes_[k]));
    }
    graph_.rewrite(std::move(nodes));
  }

 private:
  std::vector<TensorId> add(NodeId before, const std::string& name, const Op& op,
                            Attributes attributes, std::vector<TensorId> inputs,
                            std::vector<std::string> outputs) {
    const NodeId node =
        graph_.add_node(name, op, std::move(attributes), std::move(inputs), std::move(outputs))
            .value();
    before_[before].push_back(graph_.node(node));
    return graph_.node(node).outputs;
  }

  Graph& graph_;
  const Rank rank_;
  const int64_t micro_batches_;
  std::vector<Node> nodes_;  // the node list after apply()
  std::map<NodeId, std::vector<Node>> before_;
  int64_t exchanges_ = 0;
};

}  // namespace

Status check_lookup(const Lookup& lookup, const Recipe& recipe) {
  if (shards_optimizer(recipe.shard) || shards_parameters(recipe.shard)) {
    return field_error(
        "FIELD_CONFLICT", "resources.shard",
        name_of(recipe.shard) + " splits tables within rows, and " + lookup.field +
            " updates single rows; expected shard: none, head or mlp, or sparse: false");
  }
  if (!updates_elements(recipe.optimizer) && recipe.optimizer.type != "muon") {
    return field_error("FIELD_CONFLICT", "recipe.optimizer",
                       recipe.optimizer.type + " scales by the whole table, and " + lookup.field +
                           " updates single rows of it; expected one of adam, adamw, lion, muon, "
                           "rmsprop and sgd, or sparse: false");
  }
  return {};
}

NodeId find_node(const Graph& graph, const std::string& name) {
  const auto& nodes = graph.nodes();
  const auto found = std::ranges::find(nodes, name, &Node::name);
  return found == nodes.end() ? kNoNode : static_cast<NodeId>(found - nodes.begin());
}

Status gather_lookups(Model& model, const Recipe& recipe, const std::set<TensorId>& frozen,
                      Rank rank, GatheredTables& tables) {
  std::vector<std::pair<NodeId, const Lookup*>> gathered;
  const auto readers = readers_of(model.graph);
  for (const Lookup& lookup : model.lookups) {
    const NodeId k = find_node(model.graph, lookup.node);
    if (!lookup.sparse || k == kNoNode) continue;
    const TensorId table = model.graph.node(k).inputs[0];
    if (frozen.contains(table)) continue;
    for (const NodeId reader : readers[static_cast<size_t>(table)]) {
      if (reader == k) continue;
      return field_error("FIELD_CONFLICT", lookup.field,
                         "needs a table of its own, and " + model.graph.tensor(table).name +
                             " is read by " + model.graph.node(reader).name +
                             " too, whose gradient has all rows; expected false");
    }
    if (Status s = check_lookup(lookup, recipe); !s.ok()) return s;
    gathered.emplace_back(k, &lookup);
  }
  if (gathered.empty()) return {};
  Lookups lookups(model, rank, recipe.accumulate_steps);
  for (const auto& [k, lookup] : gathered) {
    const TensorId table = model.graph.node(k).inputs[0];
    tables[table] = lookups.take(k);
  }
  lookups.apply();
  return {};
}

}  // namespace trainyard
