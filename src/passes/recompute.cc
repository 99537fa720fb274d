#include "src/passes/recompute.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/ops/batch_normalization.h"
#include "src/ops/batch_normalization_relu.h"

namespace trainyard {
namespace {

// A node with at least this many FLOPs per output element counts as a product. The graph is only
// cut between products; elementwise chains stay with the product before them.
constexpr int64_t kProductFlops = 16;

class Recomputation {
 public:
  Recomputation(Graph& graph, Recompute recompute) : graph_(graph) {
    const auto& nodes = graph.nodes();
    while (forward_count_ < static_cast<NodeId>(nodes.size()) &&
           nodes[static_cast<size_t>(forward_count_)].phase == Phase::kForward) {
      ++forward_count_;
    }
    note_readers();
    find_segments(recompute);
  }

  void run() {
    if (ends_.size() < 2) return;
    // The last segment is not recomputed: backward begins there, while its activations are still
    // needed.
    for (size_t s = 0; s + 1 < ends_.size(); ++s) plan_segment(s);
    if (clones_.empty()) return;
    std::vector<Node> nodes;
    for (NodeId k = 0; k < original_count_; ++k) {
      if (const auto it = clones_.find(k); it != clones_.end()) {
        for (Node& clone : it->second) nodes.push_back(std::move(clone));
      }
      nodes.push_back(graph_.node(k));
      if (k < forward_count_) continue;
      for (TensorId& id : nodes.back().inputs) {
        if (const auto again = recomputed_.find(id); again != recomputed_.end()) id = again->second;
      }
    }
    graph_.rewrite(std::move(nodes));
  }

 private:
  const Node& node(NodeId k) const { return graph_.node(k); }
  bool is_forward(TensorId id) const {
    const NodeId producer = graph_.tensor(id).producer;
    return producer != kNoNode && producer < forward_count_;
  }
  bool is_product(NodeId k) const {
    int64_t elements = 1;
    for (const TensorId id : node(k).outputs) {
      if (id != kNoTensor) elements += graph_.tensor(id).type.shape.elements();
    }
    return node(k).op->cost(graph_, node(k)).flops >= kProductFlops * elements;
  }

  void note_readers() {
    last_use_.resize(graph_.tensors().size(), kNoNode);
    first_reader_behind_.resize(graph_.tensors().size(), kNoNode);
    for (NodeId k = 0; k < original_count_; ++k) {
      for (const TensorId id : node(k).inputs) {
        if (id == kNoTensor) continue;
        const auto i = static_cast<size_t>(id);
        if (k < forward_count_) {
          last_use_[i] = k;
        } else if (first_reader_behind_[i] == kNoNode) {
          first_reader_behind_[i] = k;
        }
      }
    }
    is_marked_.resize(graph_.tensors().size());
    for (const TensorId id : graph_.outputs()) is_marked_[static_cast<size_t>(id)] = true;
  }

  /// Sets ends_[s] to the last node of segment s. Only one computed tensor crosses from each
  /// segment to the next.
  void find_segments(Recompute recompute) {
    int64_t open = 0;  // number of computed tensors that a later forward node reads
    std::vector<int64_t> closing(static_cast<size_t>(forward_count_) + 1);
    std::vector<NodeId> ends;
    NodeId narrow = kNoNode;   // the last node after which the graph can be cut
    bool has_product = false;  // whether the current segment has a product
    for (NodeId k = 0; k < forward_count_; ++k) {
      if (is_product(k)) {
        if (has_product && narrow != kNoNode) {
          ends.push_back(narrow);
          narrow = kNoNode;
        }
        has_product = true;
      }
      for (const TensorId id : node(k).outputs) {
        if (id == kNoTensor) continue;
        const NodeId last = last_use_[static_cast<size_t>(id)];
        if (last > k) {
          ++open;
          ++closing[static_cast<size_t>(last)];
        }
      }
      open -= closing[static_cast<size_t>(k)];
      if (open == 1 && has_product) narrow = k;
    }
    if (forward_count_ > 0) ends.push_back(forward_count_ - 1);
    if (recompute == Recompute::kFull && ends.size() > 3) {
      const auto count = static_cast<size_t>(std::sqrt(static_cast<double>(ends.size())) + 0.5);
      std::vector<NodeId> fewer;
      for (size_t i = 1; i <= count; ++i) fewer.push_back(ends[ends.size() * i / count - 1]);
      ends = std::move(fewer);
    }
    ends_ = std::move(ends);
  }

  /// The tensors of a segment that stay in memory: those that later segments read, marked outputs,
  /// and those added with insert().
  class Kept {
   public:
    Kept(const Recomputation& r, NodeId end) : r_(r), end_(end) {}
    bool contains(TensorId id) const {
      const auto i = static_cast<size_t>(id);
      return r_.is_marked_[i] || r_.last_use_[i] >= end_ || extra_.contains(id);
    }
    void insert(TensorId id) { extra_.insert(id); }

   private:
    const Recomputation& r_;
    const NodeId end_;  // the node after the segment
    std::set<TensorId> extra_;
  };

  /// Chooses the nodes of segment `s` that are repeated, and where.
  void plan_segment(size_t s) {
    const NodeId begin = s == 0 ? 0 : ends_[s - 1] + 1;
    const NodeId end = ends_[s] + 1;
    Kept kept(*this, end);
    keep_small_siblings(begin, end, kept);
    NodeId first_reader = kNoNode;
    std::set<TensorId> wanted;
    for (NodeId k = begin; k < end; ++k) {
      for (const TensorId id : node(k).outputs) {
        if (id == kNoTensor) continue;
        const NodeId reader = first_reader_behind_[static_cast<size_t>(id)];
        if (reader == kNoNode || kept.contains(id) || !can_repeat(id, begin, end)) continue;
        if (first_reader == kNoNode || reader < first_reader) first_reader = reader;
        wanted.insert(id);
      }
    }
    if (wanted.empty()) return;
    std::set<NodeId> repeated;
    for (NodeId k = end - 1; k >= begin; --k) {
      const Node& n = node(k);
      const bool is_wanted = std::ranges::any_of(
          n.outputs, [&](TensorId id) { return id != kNoTensor && wanted.contains(id); });
      if (!is_wanted) continue;
      repeated.insert(k);
      for (const TensorId id : n.inputs) {
        if (id != kNoTensor && !kept.contains(id) && can_repeat(id, begin, end)) wanted.insert(id);
      }
    }
    for (const NodeId k : repeated) clone(k, first_reader, kept);
  }

  /// A node that computes a kept tensor is not repeated for its other outputs if they are no
  /// larger. These are kept, too: for example the statistics of a normalization or the sums of
  /// attention.
  void keep_small_siblings(NodeId begin, NodeId end, Kept& kept) const {
    const auto elements = [&](TensorId id) { return graph_.tensor(id).type.shape.elements(); };
    for (NodeId k = begin; k < end; ++k) {
      int64_t largest = 0;
      for (const TensorId id : node(k).outputs) {
        if (id != kNoTensor && kept.contains(id)) largest = std::max(largest, elements(id));
      }
      for (const TensorId id : node(k).outputs) {
        if (id != kNoTensor && elements(id) <= largest) kept.insert(id);
      }
    }
  }

  /// Returns true if a node of [begin, end) computes `id` and can be repeated. For a batch
  /// normalization, only the main output can be recomputed; its saved statistics are small and
  /// kept.
  bool can_repeat(TensorId id, NodeId begin, NodeId end) const {
    const NodeId producer = graph_.tensor(id).producer;
    if (producer < begin || producer >= end) return false;
    const Node& n = node(producer);
    if (n.op->starts_other_work())
      return false;  // the other ranks would have to repeat the exchange, too
    if (is_batch_norm(n))
      return id == n.outputs[0] && n.attributes.get_int("training_mode", 0) == 1;
    return std::ranges::none_of(n.op->mutated_inputs(n), [&](int64_t i) {
      return i < static_cast<int64_t>(n.inputs.size()) &&
             n.inputs[static_cast<size_t>(i)] != kNoTensor;
    });
  }
  static bool is_batch_norm(const Node& n) {
    return n.op == batch_normalization_op() || n.op == batch_normalization_relu_op();
  }

  /// Adds a copy of node k that runs before node `before`. Readers of a kept tensor still read the
  /// original, since they may run before the copy.
  void clone(NodeId k, NodeId before, const Kept& kept) {
    Node copy = node(k);
    if (is_batch_norm(copy)) {
      const bool relu = copy.op == batch_normalization_relu_op();
      const TensorId residual = copy.inputs.size() > 5 ? copy.inputs[5] : kNoTensor;
      copy.op = batch_normalization_replay_op();
      copy.attributes = {{"relu", int64_t{relu}}};
      copy.inputs = {copy.inputs[0],  copy.inputs[1],  copy.inputs[2],
                     copy.outputs[1], copy.outputs[2], residual};
      copy.outputs = {copy.outputs[0]};
    }
    for (TensorId& id : copy.inputs) {
      if (const auto again = recomputed_.find(id); again != recomputed_.end()) id = again->second;
    }
    std::vector<std::string> names;
    for (const TensorId id : copy.outputs) {
      names.push_back(id == kNoTensor ? "" : graph_.tensor(id).name + "/again");
    }
    // Added at the end of the graph, where all inputs exist; run() moves it.
    const NodeId added = graph_
                             .add_node(copy.name + "/again", *copy.op, copy.attributes, copy.inputs,
                                       std::move(names), Phase::kBackward)
                             .value();
    for (size_t i = 0; i < copy.outputs.size(); ++i) {
      const TensorId id = copy.outputs[i];
      if (id != kNoTensor && !kept.contains(id)) recomputed_[id] = graph_.node(added).outputs[i];
    }
    clones_[before].push_back(graph_.node(added));
  }

  Graph& graph_;
  const NodeId original_count_ = static_cast<NodeId>(graph_.nodes().size());
  NodeId forward_count_ = 0;
  std::vector<NodeId> last_use_;             // by tensor: its last reader in the forward pass
  std::vector<NodeId> first_reader_behind_;  // by tensor: its first reader after the forward pass
  std::vector<bool> is_marked_;              // by tensor: whether it is a marked output
  std::vector<NodeId> ends_;
  std::map<NodeId, std::vector<Node>> clones_;  // copies, by the node before which they run
  std::map<TensorId, TensorId> recomputed_;     // the copy of each tensor that is recomputed
};

}  // namespace

void recompute_activations(Graph& graph, Recompute recompute) {
  if (recompute != Recompute::kNone) Recomputation(graph, recompute).run();
}

}  // namespace trainyard
