#include "src/passes/assign_precision.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/graph/op.h"
#include "src/ops/activation.h"
#include "src/ops/cast.h"
#include "src/ops/gemm.h"
#include "src/ops/tf32.h"
#include "src/passes/node_edits.h"

namespace trainyard {
namespace {

bool may_be_narrowed(const TensorInfo& t) {
  return t.role == Role::kActivation && t.type.dtype == DType::kF32;
}

/// Returns whether an op's results may be far larger than its operands. The largest F16 number is
/// 65504.
bool grows(const Op& op) {
  const std::string_view type = op.type();
  return type == "Exp" || type == "Pow" || type == "Reciprocal" || type == "ReduceSum" ||
         type == "ReduceL2";
}

constexpr int64_t kBias = 2;
bool adds_bias(const Node& node) {
  const bool is_product =
      node.op == gemm_op() || node.op == gemm_gelu_op() || node.op == gemm_relu_op();
  return is_product && node.inputs.size() > kBias && node.inputs[kBias] != kNoTensor;
}

/// Indexed by tensor ID: whether it stays F32.
std::vector<bool> kept_in_f32(const Graph& graph, Storage storage) {
  std::vector<bool> kept(graph.tensors().size());
  const auto keep = [&](const std::vector<TensorId>& ids, int64_t i) {
    if (i >= static_cast<int64_t>(ids.size())) return;
    const TensorId id = ids[static_cast<size_t>(i)];
    if (id != kNoTensor && may_be_narrowed(graph.tensor(id))) kept[static_cast<size_t>(id)] = true;
  };
  for (const TensorId id : graph.outputs()) kept[static_cast<size_t>(id)] = true;
  for (const Node& node : graph.nodes()) {
    const PrecisionRule rule = node.op->precision_rule();
    for (const int64_t i : rule.f32_outputs) keep(node.outputs, i);
    for (const int64_t i : rule.f32_inputs) keep(node.inputs, i);
    if (storage == Storage::kF16 && grows(*node.op)) keep(node.outputs, 0);
    // A bias that is computed, for example by a lookup, is added in F32.
    if (adds_bias(node)) keep(node.inputs, kBias);
    if (node.phase != Phase::kUpdate) continue;
    for (size_t i = 0; i < node.outputs.size(); ++i) keep(node.outputs, static_cast<int64_t>(i));
  }
  // An op that only moves elements has input and output in one storage: two storages would cost a
  // copy, and rounding between two F32 tensors would lose precision. First propagate from outputs
  // to inputs, then from inputs to outputs.
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node) {
    if (!node->op->precision_rule().moves || !kept[static_cast<size_t>(node->outputs[0])]) continue;
    keep(node->inputs, 0);
  }
  for (const Node& node : graph.nodes()) {
    if (!node.op->precision_rule().moves || !kept[static_cast<size_t>(node.inputs[0])]) continue;
    keep(node.outputs, 0);
  }
  return kept;
}

/// Indexed by tensor ID: whether it is a parameter that a product of the backward pass reads. The
/// 16-bit copy of such a parameter lives from the forward pass on.
std::vector<bool> factors_of_backward(const Graph& graph) {
  std::vector<bool> found(graph.tensors().size());
  for (const Node& node : graph.nodes()) {
    if (node.phase != Phase::kBackward) continue;
    for (const int64_t i : node.op->precision_rule().factors) {
      if (i >= static_cast<int64_t>(node.inputs.size())) continue;
      const TensorId id = node.inputs[static_cast<size_t>(i)];
      if (id != kNoTensor && graph.tensor(id).role == Role::kParameter) {
        found[static_cast<size_t>(id)] = true;
      }
    }
  }
  return found;
}

/// Returns whether a library adds the node's bias in the 16-bit type of its result.
bool adds_bias_in_half(const Graph& graph, const Node& node) {
  return adds_bias(node) && graph.tensor(node.inputs[kBias]).role == Role::kParameter &&
         graph.tensor(node.outputs[0]).is_half();
}

/// Makes every product read its factors in 16 bits, and on a GPU its bias. The copies of biases,
/// and of parameters that backward reads again, are placed together at the start, so that one
/// launch creates them (Backend::prepare_group); all of them exist when backward begins anyway.
/// Every other copy is placed before its first reader.
void insert_casts(Graph& graph, Storage storage, Processor processor) {
  const std::vector<bool> lasting = factors_of_backward(graph);
  NodeInsertions insertions(graph);
  std::map<TensorId, TensorId> narrow;
  for (size_t k = 0; k < insertions.count(); ++k) {
    std::vector<int64_t> read = insertions.node(k).op->precision_rule().factors;
    const bool adds = processor == Processor::kGpu && adds_bias_in_half(graph, insertions.node(k));
    if (adds) read.push_back(kBias);
    for (const int64_t i : read) {
      const std::vector<TensorId>& inputs = insertions.node(k).inputs;
      if (i >= static_cast<int64_t>(inputs.size())) continue;
      const TensorId id = inputs[static_cast<size_t>(i)];
      if (id == kNoTensor || graph.tensor(id).is_half()) continue;
      if (graph.tensor(id).type.dtype != DType::kF32) continue;
      if (!narrow.contains(id)) {
        const std::string name =
            graph.tensor(id).name + (storage == Storage::kF16 ? "/f16" : "/bf16");
        const Layout layout = graph.tensor(id).layout;
        const bool is_first = lasting[static_cast<size_t>(id)] || (adds && i == kBias);
        narrow[id] =
            is_first ? insertions.insert_first(name, *cast_op(), id, Phase::kForward)
                     : insertions.insert_before(k, name, *cast_op(), id, insertions.node(k).phase);
        graph.set_layout(narrow[id], layout);
        graph.set_storage(narrow[id], storage);
      }
      insertions.replace_input(k, static_cast<size_t>(i), narrow[id]);
    }
  }
  insertions.apply();
}

}  // namespace

void assign_half(Graph& graph, Storage storage, Processor processor) {
  const std::vector<bool> kept = kept_in_f32(graph, storage);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i] && may_be_narrowed(graph.tensors()[i])) {
      graph.set_storage(static_cast<TensorId>(i), storage);
    }
  }
  insert_casts(graph, storage, processor);
}

void allow_tf32(Graph& graph) {
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes) {
    const bool multiplies = !node.op->precision_rule().factors.empty();
    if (!multiplies) continue;
    if (graph.tensor(node.inputs[0]).type.dtype != DType::kF32) continue;
    node.attributes.set(std::string(kTf32Attribute), int64_t{1});
  }
  graph.rewrite(std::move(nodes));
}

}  // namespace trainyard
