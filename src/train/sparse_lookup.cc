#include "src/train/sparse_lookup.h"

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
#include "src/train/model_copy.h"

namespace trainyard {
namespace {

Status check_lookup(const Lookup& lookup, const Recipe& recipe) {
  if (shards_optimizer(recipe.shard) || shards_parameters(recipe.shard)) {
    return field_error(
        "FIELD_CONFLICT", "resources.shard",
        name_of(recipe.shard) + " cuts tables where no row ends, and " + lookup.field +
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

/// Changes one graph. New nodes are made at its end, and moved to before the lookup by apply().
class Lookups {
 public:
  Lookups(Model& model, Rank rank, int64_t micro_batches)
      : graph_(model.graph), rank_(rank), micro_batches_(micro_batches), nodes_(graph_.nodes()) {}

  TakenRows take(NodeId k) {
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
    const TensorId taken = add(k, rows, *take_rows_op(), {}, {table, found[0]}, {rows})[0];
    lookup.inputs = {taken, found[1]};
    return {taken, kept.kept == kNoTensor ? found[0] : kept.kept};
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
  std::vector<Node> nodes_;  // as they will be
  std::map<NodeId, std::vector<Node>> before_;
  int64_t exchanges_ = 0;
};

// What a step need not move before a sentence says so: less than 20 ms of one core.
constexpr int64_t kWorthBytes = int64_t{64} << 20;

/// Bytes that the gradient and the update of a whole table move in a step, by its lookup and its
/// name.
int64_t whole_table_bytes(const RunPrograms& programs, const std::string& lookup,
                          const std::string& table, int64_t micro_batches) {
  int64_t bytes = 0;
  const auto add = [&](const Program& program, int64_t runs) {
    for (const Node& node : program.graph.nodes()) {
      const bool is_of_table = node.name == lookup + "/grad" ||
                               node.name == table + "/accumulate" || node.name == table + "/clip" ||
                               node.name == table + "/update";
      if (is_of_table) bytes += runs * node.op->cost(program.graph, node).bytes;
    }
  };
  add(programs.train.program, micro_batches);
  if (programs.update.has_value()) add(programs.update->program, 1);
  return bytes;
}

NodeId find_node(const Graph& graph, const std::string& name) {
  const auto& nodes = graph.nodes();
  const auto found = std::ranges::find(nodes, name, &Node::name);
  return found == nodes.end() ? kNoNode : static_cast<NodeId>(found - nodes.begin());
}

}  // namespace

Status take_lookups(Model& model, const Recipe& recipe, const std::set<TensorId>& frozen, Rank rank,
                    TakenTables& tables) {
  std::vector<std::pair<NodeId, const Lookup*>> taken;
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
                             " too, whose gradient is of all rows; expected false");
    }
    if (Status s = check_lookup(lookup, recipe); !s.ok()) return s;
    taken.emplace_back(k, &lookup);
  }
  if (taken.empty()) return {};
  Lookups lookups(model, rank, recipe.accumulate_steps);
  for (const auto& [k, lookup] : taken) {
    const TensorId table = model.graph.node(k).inputs[0];
    tables[table] = lookups.take(k);
  }
  lookups.apply();
  return {};
}

void warn_of_whole_tables(const RunPrograms& programs, const Recipe& recipe, int64_t ranks,
                          std::vector<std::string>& warnings) {
  const Graph& graph = programs.train.program.graph;
  int64_t all = programs.train.program.bytes * recipe.accumulate_steps;
  for (const auto* other : {&programs.update, &programs.average}) {
    if (other->has_value()) all += (*other)->program.bytes;
  }
  const auto readers = readers_of(graph);
  for (const Lookup& lookup : programs.lookups) {
    const NodeId k = find_node(graph, lookup.node);
    if (lookup.sparse || k == kNoNode || !check_lookup(lookup, recipe).ok()) continue;
    const TensorInfo& table = graph.tensor(graph.node(k).inputs[0]);
    const int64_t named = graph.tensor(graph.node(k).inputs[1]).type.shape.elements() * ranks;
    const int64_t rows = table.type.shape[0];
    const int64_t read = distinct_rows_size(rows, named, recipe.accumulate_steps);
    const int64_t whole =
        whole_table_bytes(programs, lookup.node, table.name, recipe.accumulate_steps);
    const int64_t saved = whole - whole / rows * read;
    const bool is_own = std::ranges::count_if(readers[static_cast<size_t>(graph.node(k).inputs[0])],
                                              [&](NodeId reader) {
                                                return graph.node(reader).phase != Phase::kUpdate;
                                              }) == 1;
    if (!is_own || saved < kWorthBytes || saved <= all / 2) continue;
    warnings.push_back(lookup.node + " reads at most " + std::to_string(read) + " of its " +
                       std::to_string(rows) + " rows in a step, and " + human_bytes(saved) +
                       " of the " + human_bytes(all) +
                       " that a step moves are gradients and updates of the others; " +
                       lookup.field + ": true updates only those that are read");
  }
}

}  // namespace trainyard
