#include "src/planning/exchanges.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "src/graph/op.h"
#include "src/runtime/communicator.h"

namespace trainyard {

namespace {

/// Returns the kind of an exchange, such as "all_reduce", and the axis split over the ranks.
std::pair<std::string, std::string> kind_of(std::string_view op_type) {
  if (op_type.starts_with("AllReduce")) return {"all_reduce", ""};
  if (op_type.starts_with("ReduceScatter")) return {"reduce_scatter", "elements"};
  if (op_type == "GatherRows") return {"gather_rows", "rows"};
  if (op_type == "ScatterRows") return {"scatter_rows", "rows"};
  return {"all_gather", "elements"};
}

}  // namespace

std::vector<PlannedExchange> plan_exchanges(const std::vector<ExchangingProgram>& programs,
                                            int64_t ranks) {
  std::vector<PlannedExchange> exchanges;
  for (const auto& [program, runs, computes] : programs) {
    std::map<std::string_view, int64_t> begun;  // exchanges so far that may overlap, by op
    for (const NodeId k : program.order) {
      const Node& node = program.graph.node(k);
      if (!starts_exchange(node.op->type())) continue;
      const auto [kind, axis] = kind_of(node.op->type());
      auto known = std::ranges::find(exchanges, kind, &PlannedExchange::kind);
      if (known == exchanges.end()) known = exchanges.insert(known, {kind, axis});
      known->count += runs;
      // All exchanges of an op but one overlap: after the last one nothing is left to compute.
      const bool is_beside = computes && !exchanges_rows(node.op->type());
      if (is_beside && begun[node.op->type()]++ > 0) known->overlapped_count += runs;
      // The bytes are those of the whole tensor: the output of a gather, else the input.
      const bool makes = kind == "gather_rows" || (kind == "all_gather" && !node.outputs.empty());
      for (const TensorId id : makes ? node.outputs : node.inputs) {
        known->bytes += runs * program.graph.tensor(id).stored_bytes();
      }
    }
  }
  // Each device sends at least 1 - 1 / ranks of the bytes; an all-reduce has two such exchanges.
  for (PlannedExchange& e : exchanges) {
    e.sent_bytes = (e.kind == "all_reduce" ? 2 : 1) * e.bytes * (ranks - 1) / ranks;
  }
  return exchanges;
}

}  // namespace trainyard
