#include "src/plan/lanes.h"

#include <algorithm>

#include "src/graph/op.h"

namespace trainyard {
namespace {

/// Returns whether nothing in the backward pass waits for the node, except sums of gradients and
/// updates; or the node has nothing to wait for.
bool may_run_aside(const Graph& graph, const Node& node) {
  if (node.inputs.empty()) return true;
  if (node.phase == Phase::kForward) return false;
  if (node.phase == Phase::kUpdate && !node.outputs.empty()) return false;
  return std::ranges::all_of(node.outputs, [&](TensorId id) {
    return id == kNoTensor || graph.tensor(id).role == Role::kGradient;
  });
}

/// The tensors that steps of the side lane have read and written since the last join.
class Aside {
 public:
  explicit Aside(const Graph& graph)
      : read_(graph.tensors().size()), written_(graph.tensors().size()) {}

  void add(const Node& node) {
    mark(node.inputs, read_);
    mark(node.outputs, written_);
    for (const TensorId id : updated_by(node)) written_[static_cast<size_t>(id)] = true;
  }
  void clear() {
    read_.assign(read_.size(), false);
    written_.assign(written_.size(), false);
  }
  /// Returns whether a step of the main lane must wait.
  bool concerns(const Node& node) const {
    const auto is_in = [](const std::vector<bool>& marked) {
      return [&marked](TensorId id) { return id != kNoTensor && marked[static_cast<size_t>(id)]; };
    };
    return std::ranges::any_of(node.inputs, is_in(written_)) ||
           std::ranges::any_of(updated_by(node), is_in(read_));
  }

 private:
  static std::vector<TensorId> updated_by(const Node& node) {
    std::vector<TensorId> updated;
    for (const int64_t i : node.op->mutated_inputs(node)) {
      const TensorId id = node.inputs.at(static_cast<size_t>(i));
      if (id != kNoTensor) updated.push_back(id);
    }
    return updated;
  }
  static void mark(const std::vector<TensorId>& ids, std::vector<bool>& marked) {
    for (const TensorId id : ids) {
      if (id != kNoTensor) marked[static_cast<size_t>(id)] = true;
    }
  }

  std::vector<bool> read_, written_;  // by tensor
};

/// Returns the last step of the backward pass that cannot run aside; -1 if there is none.
int64_t last_of_backward(const Graph& graph, const std::vector<NodeId>& order) {
  for (auto step = std::ssize(order) - 1; step >= 0; --step) {
    const Node& node = graph.node(order[static_cast<size_t>(step)]);
    if (node.phase == Phase::kBackward && !may_run_aside(graph, node)) return step;
  }
  return -1;
}

}  // namespace

std::vector<LaneStep> assign_lanes(const Graph& graph, const std::vector<NodeId>& order) {
  const bool is_alone = std::ranges::none_of(
      graph.nodes(), [](const Node& node) { return node.op->starts_other_work(); });
  if (!is_alone) return {};
  const int64_t last = last_of_backward(graph, order);
  std::vector<LaneStep> lanes(order.size());
  Aside aside(graph);
  bool has_side = false;
  for (size_t step = 0; step < order.size(); ++step) {
    const Node& node = graph.node(order[step]);
    if (static_cast<int64_t>(step) < last && may_run_aside(graph, node)) {
      lanes[step].lane = Lane::kSide;
      aside.add(node);
      has_side |= !node.inputs.empty();
    } else if (aside.concerns(node)) {
      lanes[step].joins = true;
      aside.clear();
    }
  }
  return has_side ? lanes : std::vector<LaneStep>();
}

std::vector<int64_t> ends_of(const std::vector<LaneStep>& lanes) {
  std::vector<int64_t> ends(lanes.size());
  int64_t next = std::ssize(lanes);
  for (auto step = std::ssize(lanes) - 1; step >= 0; --step) {
    const LaneStep& at = lanes[static_cast<size_t>(step)];
    ends[static_cast<size_t>(step)] = at.lane == Lane::kSide ? next : step;
    if (at.joins) next = step;
  }
  return ends;
}

}  // namespace trainyard
