#include "src/planning/whole_tables.h"

#include <algorithm>

#include "src/base/text.h"
#include "src/graph/op.h"
#include "src/ops/distinct_rows.h"
#include "src/parallel/model_copy.h"
#include "src/parallel/sparse_lookup.h"

namespace trainyard {
namespace {

// No warning is given for fewer bytes, since a core moves them in less than 20 ms.
constexpr int64_t kWorthBytes = int64_t{64} << 20;

/// Returns the bytes that the gradient and the update of a whole table move in a step. `lookup` is
/// the name of the node that reads it, `table` that of its tensor.
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

}  // namespace

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
    warnings.push_back(
        lookup.node + " reads at most " + std::to_string(read) + " of its " + std::to_string(rows) +
        " rows in a step, and " + human_bytes(saved) + " of the " + human_bytes(all) +
        " that a step reads and writes are gradients and updates of the other rows; " +
        lookup.field + ": true updates only the rows that are read");
  }
}

}  // namespace trainyard
