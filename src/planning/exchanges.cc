#include "src/planning/exchanges.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "src/graph/op.h"
#include "src/runtime/communicator.h"

namespace trainyard {

std::vector<std::string> exchanges_of(const RunPrograms& programs, int64_t micro_batches) {
  std::vector<std::string> names;
  const auto add = [&](const Program& program) {
    for (const NodeId k : program.order) {
      const Node& node = program.graph.node(k);
      if (starts_exchange(node.op->type())) names.push_back(node.name);
    }
  };
  for (int64_t k = 0; k < micro_batches; ++k) add(programs.train.program);
  if (programs.update.has_value()) add(programs.update->program);
  return names;
}

int64_t exchanges_in(const Program& program) {
  return std::ranges::count_if(program.graph.nodes(),
                               [](const Node& node) { return starts_exchange(node.op->type()); });
}

namespace {

/// Returns the kind of an exchange, such as "all_reduce", and the axis split over the ranks.
std::pair<std::string, std::string> kind_of(std::string_view op_type) {
  if (op_type.starts_with("AllReduce")) return {"all_reduce", ""};
  if (op_type.starts_with("ReduceScatter")) return {"reduce_scatter", "elements"};
  if (op_type == "GatherRows") return {"gather_rows", "rows"};
  if (op_type == "ScatterRows") return {"scatter_rows", "rows"};
  return {"all_gather", "elements"};
}

struct ExchangingProgram {
  const Program& program;
  int64_t runs = 1;
  bool computes = true;  // false for updates, whose computation is too short to hide exchanges
};

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

}  // namespace

std::vector<PlannedExchange> plan_exchanges(const RunPrograms& programs, const RunShape& shape) {
  std::vector<ExchangingProgram> all = {{programs.train.program, shape.micro_batches}};
  if (programs.update.has_value()) all.push_back({programs.update->program, 1, false});
  return plan_exchanges(all, shape.ranks);
}

std::vector<PlannedExchange> plan_exchanges(const Program& program, int64_t ranks) {
  return plan_exchanges(std::vector<ExchangingProgram>{{program}}, ranks);
}

}  // namespace trainyard
