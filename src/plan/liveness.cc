#include "src/plan/liveness.h"

#include <algorithm>

#include "src/graph/op.h"
#include "src/plan/program.h"

namespace trainyard {
namespace {

struct Lifetime {
  int64_t first = 0;
  int64_t last = 0;
};

std::vector<Lifetime> lifetimes(const Graph& graph, const std::vector<NodeId>& order) {
  const int64_t end = static_cast<int64_t>(order.size());
  std::vector<Lifetime> lives(graph.tensors().size());
  for (int64_t step = 0; step < end; ++step) {
    const Node& node = graph.node(order[static_cast<size_t>(step)]);
    for (const TensorId id : node.outputs) {
      if (id != kNoTensor) lives[static_cast<size_t>(id)] = {step, step};
    }
    for (const TensorId id : node.inputs) {
      if (id != kNoTensor) lives[static_cast<size_t>(id)].last = step;
    }
  }
  for (size_t i = 0; i < lives.size(); ++i) {
    if (graph.tensors()[i].role == Role::kInput) lives[i] = {0, end};
  }
  for (const TensorId id : graph.outputs()) lives[static_cast<size_t>(id)].last = end;
  return lives;
}

/// The input whose memory an output of `node` may take over: its last reader is this step, and it
/// was computed, so that nobody outside expects to find it.
TensorId reusable_input(const Graph& graph, const Node& node, int64_t output, int64_t step,
                        const std::vector<Lifetime>& lives, std::vector<bool>& taken) {
  const TensorInfo& out = graph.tensor(node.outputs[static_cast<size_t>(output)]);
  for (const auto& [o, i] : node.op->may_alias()) {
    if (o != output || i >= static_cast<int64_t>(node.inputs.size())) continue;
    const TensorId id = node.inputs[static_cast<size_t>(i)];
    if (id == kNoTensor || taken[static_cast<size_t>(id)]) continue;
    const TensorInfo& in = graph.tensor(id);
    if (in.producer == kNoNode || lives[static_cast<size_t>(id)].last != step) continue;
    if (in.type.bytes() != out.type.bytes() || in.type.dtype != out.type.dtype) continue;
    if (in.layout != out.layout || in.storage != out.storage) continue;
    if (std::count(node.inputs.begin(), node.inputs.end(), id) > 1) continue;
    taken[static_cast<size_t>(id)] = true;
    return id;
  }
  return kNoTensor;
}

}  // namespace

int64_t padded_bytes(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

std::vector<Buffer> find_buffers(const Graph& graph, const std::vector<NodeId>& order) {
  const std::vector<Lifetime> lives = lifetimes(graph, order);
  std::vector<Buffer> buffers;
  std::vector<size_t> buffer_of(lives.size());
  std::vector<bool> taken(lives.size());
  const auto open_buffer = [&](TensorId id) {
    const auto index = static_cast<size_t>(id);
    buffer_of[index] = buffers.size();
    buffers.push_back({{id},
                       padded_bytes(graph.tensor(id).stored_bytes()),
                       lives[index].first,
                       lives[index].last});
  };
  for (size_t i = 0; i < lives.size(); ++i) {
    if (graph.tensors()[i].role == Role::kInput) open_buffer(static_cast<TensorId>(i));
  }
  for (int64_t step = 0; step < static_cast<int64_t>(order.size()); ++step) {
    const Node& node = graph.node(order[static_cast<size_t>(step)]);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const TensorId id = node.outputs[o];
      if (id == kNoTensor) continue;
      const TensorId reused =
          reusable_input(graph, node, static_cast<int64_t>(o), step, lives, taken);
      if (reused == kNoTensor) {
        open_buffer(id);
        continue;
      }
      Buffer& buffer = buffers[buffer_of[static_cast<size_t>(reused)]];
      buffer.tensors.push_back(id);
      buffer.last = lives[static_cast<size_t>(id)].last;
      buffer_of[static_cast<size_t>(id)] = buffer_of[static_cast<size_t>(reused)];
    }
  }
  return buffers;
}

}  // namespace trainyard
