#include "src/plan/node_groups.h"

#include <vector>

#include "src/graph/op.h"

namespace trainyard {
namespace {

/// The memory that nodes read and write.
class Touched {
 public:
  Touched(const Program& program, const Node& node) {
    const auto add = [&](TensorId id, std::vector<Placement>& to) {
      if (id != kNoTensor) to.push_back(program.placements[static_cast<size_t>(id)]);
    };
    for (const TensorId id : node.inputs) add(id, all_);
    for (const TensorId id : node.outputs) add(id, written_);
    for (const int64_t i : node.op->mutated_inputs(node)) {
      add(node.inputs.at(static_cast<size_t>(i)), written_);
    }
    all_.insert(all_.end(), written_.begin(), written_.end());
  }
  void add(const Touched& other) {
    all_.insert(all_.end(), other.all_.begin(), other.all_.end());
    written_.insert(written_.end(), other.written_.begin(), other.written_.end());
  }
  /// Returns whether neither side writes memory that the other reads or writes.
  bool is_apart_from(const Touched& other) const {
    return !overlap(written_, other.all_) && !overlap(all_, other.written_);
  }

 private:
  static bool overlap(const std::vector<Placement>& a, const std::vector<Placement>& b) {
    for (const Placement& x : a) {
      for (const Placement& y : b) {
        if (x.segment == y.segment && x.offset_bytes < y.offset_bytes + y.size_bytes &&
            y.offset_bytes < x.offset_bytes + x.size_bytes) {
          return true;
        }
      }
    }
    return false;
  }
  std::vector<Placement> all_, written_;
};

bool share_lane(const Program& program, size_t a, size_t b) {
  return program.lanes.empty() || program.lanes[a].lane == program.lanes[b].lane;
}

bool may_join(const Graph& graph, const Node& node) {
  return node.op->type() == "Cast" || (node.phase == Phase::kUpdate && !updated_rows(graph, node));
}

}  // namespace

size_t joinable_nodes(const Program& program, size_t first) {
  const Node& node = program.graph.node(program.order[first]);
  if (!may_join(program.graph, node)) return 1;
  Touched group(program, node);
  size_t size = 1;
  for (; first + size < program.order.size(); ++size) {
    const Node& next = program.graph.node(program.order[first + size]);
    if (next.op != node.op || next.phase != node.phase || !may_join(program.graph, next)) break;
    if (!share_lane(program, first, first + size)) break;
    const Touched touched(program, next);
    if (!touched.is_apart_from(group)) break;
    group.add(touched);
  }
  return size;
}

}  // namespace trainyard
