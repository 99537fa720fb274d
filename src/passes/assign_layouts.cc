#include "src/passes/assign_layouts.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/ops/reorder.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

/// Returns whether the pass may choose the tensor's layout. Parameters, their gradients, and
/// tensors of other ranks are always row-major.
bool has_layout_choice(const TensorInfo& t) {
  return t.type.shape.rank() == 4 && (t.role == Role::kActivation || t.role == Role::kInput);
}

/// Returns whether the node can run in either layout. The rank-4 operands of an elementwise op must
/// all have the same layout, so it stays row-major if one of them is a parameter or a parameter's
/// gradient. Other ops, such as convolutions, also read row-major filters; only their images, input
/// 0 and output 0, matter.
bool is_flexible(const Graph& graph, const Node& node) {
  const LayoutRule rule = node.op->layout_rule();
  if (rule == LayoutRule::kRowMajorOnly) return false;
  const auto is_fixed = [&](TensorId id) {
    return id != kNoTensor && graph.tensor(id).type.shape.rank() == 4 &&
           !has_layout_choice(graph.tensor(id));
  };
  if (rule == LayoutRule::kChannelsLastToo) {
    return !(!node.inputs.empty() && is_fixed(node.inputs[0])) &&
           !(!node.outputs.empty() && is_fixed(node.outputs[0]));
  }
  return std::none_of(node.inputs.begin(), node.inputs.end(), is_fixed) &&
         std::none_of(node.outputs.begin(), node.outputs.end(), is_fixed);
}

/// Disjoint sets of nodes (union-find). The representative is the smallest index.
class Components {
 public:
  explicit Components(size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }
  size_t find(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(size_t a, size_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<size_t> parent_;
};

/// Returns the layout in which each node computes.
std::vector<Layout> layouts_of_nodes(const Graph& graph) {
  const size_t count = graph.nodes().size();
  Components components(count);
  for (size_t k = 0; k < count; ++k) {
    if (!is_flexible(graph, graph.nodes()[k])) continue;
    for (const TensorId id : graph.nodes()[k].inputs) {
      if (id == kNoTensor || !has_layout_choice(graph.tensor(id))) continue;
      const NodeId producer = graph.tensor(id).producer;
      if (producer != kNoNode && is_flexible(graph, graph.node(producer))) {
        components.join(static_cast<size_t>(producer), k);
      }
    }
  }
  std::vector<bool> gains(count);
  for (size_t k = 0; k < count; ++k) {
    if (is_flexible(graph, graph.nodes()[k]) &&
        graph.nodes()[k].op->layout_rule() == LayoutRule::kChannelsLastToo) {
      gains[components.find(k)] = true;
    }
  }
  std::vector<Layout> layouts(count, Layout::kRowMajor);
  for (size_t k = 0; k < count; ++k) {
    if (is_flexible(graph, graph.nodes()[k]) && gains[components.find(k)]) {
      layouts[k] = Layout::kChannelsLast;
    }
  }
  return layouts;
}

/// Sets the layout of tensors that both layouts store with the same bytes: if all readers want
/// channels-last, the tensor needs no Reorder.
void adopt_layout_of_readers(Graph& graph, const std::vector<Layout>& layouts) {
  std::vector<bool> wants_row_major(graph.tensors().size());
  std::vector<bool> wants_channels_last(graph.tensors().size());
  for (size_t k = 0; k < graph.nodes().size(); ++k) {
    for (const TensorId id : graph.nodes()[k].inputs) {
      if (id == kNoTensor) continue;
      auto& wants = layouts[k] == Layout::kRowMajor ? wants_row_major : wants_channels_last;
      wants[static_cast<size_t>(id)] = true;
    }
  }
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const TensorInfo& t = graph.tensors()[i];
    if (has_layout_choice(t) && layouts_share_bytes(t.type.shape) && wants_channels_last[i] &&
        !wants_row_major[i]) {
      graph.set_layout(static_cast<TensorId>(i), Layout::kChannelsLast);
    }
  }
}

void insert_reorders(Graph& graph, const std::vector<Layout>& layouts) {
  NodeInsertions insertions(graph);
  std::map<TensorId, TensorId> reordered;  // by tensor: its copy in the other layout
  for (size_t k = 0; k < layouts.size(); ++k) {
    for (size_t i = 0; i < insertions.node(k).inputs.size(); ++i) {
      const TensorId id = insertions.node(k).inputs[i];
      if (id == kNoTensor || !has_layout_choice(graph.tensor(id))) continue;
      const Layout wanted = layouts[k];
      if (graph.tensor(id).layout == wanted) continue;
      if (!reordered.contains(id)) {
        const std::string name =
            graph.tensor(id).name + (wanted == Layout::kChannelsLast ? "/nhwc" : "/nchw");
        reordered[id] =
            insertions.insert_before(k, name, *reorder_op(), id, insertions.node(k).phase);
        graph.set_layout(reordered[id], wanted);
      }
      insertions.replace_input(k, i, reordered[id]);
    }
  }
  insertions.apply();
}

}  // namespace

void assign_layouts(Graph& graph) {
  const std::vector<Layout> layouts = layouts_of_nodes(graph);
  for (size_t k = 0; k < layouts.size(); ++k) {
    for (const TensorId id : graph.nodes()[k].outputs) {
      if (id != kNoTensor && has_layout_choice(graph.tensor(id))) graph.set_layout(id, layouts[k]);
    }
  }
  adopt_layout_of_readers(graph, layouts);
  insert_reorders(graph, layouts);
}

}  // namespace trainyard
