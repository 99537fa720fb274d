#include "src/plan/schedule.h"

#include <algorithm>
#include <deque>
#include <set>

#include "kernels/alignment.h"
#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/plan/liveness.h"

namespace trainyard {
namespace {

/// Returns the nodes that must run before each update node; empty for other nodes.
std::vector<std::set<NodeId>> update_predecessors(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.tensors().size());
  for (NodeId k = 0; k < static_cast<NodeId>(graph.nodes().size()); ++k) {
    for (const TensorId id : graph.node(k).inputs) {
      if (id != kNoTensor) readers[static_cast<size_t>(id)].push_back(k);
    }
  }
  std::vector<std::set<NodeId>> before(graph.nodes().size());
  for (NodeId k = 0; k < static_cast<NodeId>(graph.nodes().size()); ++k) {
    const Node& node = graph.node(k);
    if (node.phase != Phase::kUpdate) continue;
    auto& mine = before[static_cast<size_t>(k)];
    for (const TensorId id : node.inputs) {
      if (id != kNoTensor && graph.tensor(id).producer != kNoNode) {
        mine.insert(graph.tensor(id).producer);
      }
    }
    for (const int64_t i : node.op->mutated_inputs(node)) {
      const TensorId id = node.inputs.at(static_cast<size_t>(i));
      if (id == kNoTensor) continue;
      for (const NodeId reader : readers[static_cast<size_t>(id)]) {
        if (reader < k) mine.insert(reader);  // readers after node k need its result
      }
    }
  }
  return before;
}

/// Returns the bytes that an update keeps alive while it waits: those of the computed tensors that
/// it reads. They are padded as on the host, so that the order is the same on every device.
int64_t deferred_bytes(const Graph& graph, const Node& update) {
  int64_t bytes = 0;
  for (const TensorId id : update.inputs) {
    if (id == kNoTensor || graph.tensor(id).producer == kNoNode) continue;
    bytes += round_up(graph.tensor(id).stored_bytes(), kHostAlignment);
  }
  return bytes;
}

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph)
      : graph_(graph), waiting_(graph.nodes().size()), releases_(waiting_.size()) {
    const std::vector<std::set<NodeId>> before = update_predecessors(graph);
    for (size_t k = 0; k < before.size(); ++k) {
      waiting_[k] = before[k].size();
      for (const NodeId b : before[k]) {
        releases_[static_cast<size_t>(b)].push_back(static_cast<NodeId>(k));
      }
    }
  }

  std::vector<NodeId> run() {
    for (NodeId k = 0; k < static_cast<NodeId>(waiting_.size()); ++k) {
      if (graph_.node(k).phase != Phase::kUpdate) {
        place(k);
      } else if (waiting_[static_cast<size_t>(k)] == 0 && !known_.contains(k)) {
        offer(k);  // reads no computed tensor, so no other node releases it
      }
      place_ready();
    }
    while (!deferred_.empty()) {
      release_deferred();
      place_ready();
    }
    TRAINYARD_CHECK(order_.size() == graph_.nodes().size(), "the update nodes wait for each other");
    return std::move(order_);
  }

 private:
  void place(NodeId k) {
    order_.push_back(k);
    for (const NodeId next : releases_[static_cast<size_t>(k)]) {
      if (--waiting_[static_cast<size_t>(next)] == 0) offer(next);
    }
  }

  /// Called when an update can run. If it keeps much memory alive, has outputs or starts other
  /// work, it runs next. Other updates wait until there are enough of them for a launch.
  void offer(NodeId k) {
    known_.insert(k);
    const Node& node = graph_.node(k);
    const int64_t bytes = deferred_bytes(graph_, node);
    if (!node.outputs.empty() || bytes > kDeferredEachMax || node.op->starts_other_work()) {
      ready_.push_back(k);
      return;
    }
    deferred_.push_back(k);
    deferred_bytes_ += bytes;
    if (deferred_bytes_ > kDeferredMax - kDeferredEachMax) release_deferred();
  }

  void release_deferred() {
    std::ranges::stable_sort(deferred_, {}, [&](NodeId k) { return graph_.node(k).op->type(); });
    ready_.insert(ready_.end(), deferred_.begin(), deferred_.end());
    deferred_.clear();
    deferred_bytes_ = 0;
  }

  void place_ready() {
    while (!ready_.empty()) {  // a queue, because an update may release other updates
      const NodeId k = ready_.front();
      ready_.pop_front();
      place(k);
    }
  }

  const Graph& graph_;
  std::vector<size_t> waiting_;  // by node: how many nodes must still run before it
  std::vector<std::vector<NodeId>> releases_;
  std::set<NodeId> known_;  // updates that have been passed to offer()
  std::deque<NodeId> ready_;
  std::vector<NodeId> deferred_;
  int64_t deferred_bytes_ = 0;
  std::vector<NodeId> order_;
};

}  // namespace

std::vector<NodeId> schedule(const Graph& graph) { return Scheduler(graph).run(); }

}  // namespace trainyard
