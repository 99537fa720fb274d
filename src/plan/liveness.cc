#include "src/plan/liveness.h"

#include <algorithm>
#include <cstdint>

#include "kernels/alignment.h"
#include "src/graph/op.h"

namespace trainyard {
namespace {

struct Lifetime {
  int64_t first = 0;
  int64_t last = 0;
};

std::vector<Lifetime> lifetimes(const Graph& graph, const std::vector<NodeId>& order,
                                const std::vector<LaneStep>& lanes) {
  const int64_t end = static_cast<int64_t>(order.size());
  const std::vector<int64_t> ends = ends_of(lanes);
  std::vector<Lifetime> lives(graph.tensors().size());
  for (int64_t step = 0; step < end; ++step) {
    const Node& node = graph.node(order[static_cast<size_t>(step)]);
    const int64_t ended = ends.empty() ? step : ends[static_cast<size_t>(step)];
    for (const TensorId id : node.outputs) {
      if (id != kNoTensor) lives[static_cast<size_t>(id)] = {step, ended};
    }
    for (const TensorId id : node.inputs) {
      if (id == kNoTensor) continue;
      int64_t& last = lives[static_cast<size_t>(id)].last;
      last = std::max(last, ended);
    }
  }
  for (size_t i = 0; i < lives.size(); ++i) {
    if (graph.tensors()[i].role == Role::kInput) lives[i] = {0, end};
  }
  for (const TensorId id : graph.outputs()) lives[static_cast<size_t>(id)].last = end;
  return lives;
}

/// Assigns a buffer to every tensor that is not persistent, step by step.
class BufferFinder {
 public:
  BufferFinder(const Graph& graph, const std::vector<NodeId>& order, int64_t alignment,
               const std::vector<LaneStep>& lanes)
      : graph_(graph),
        lives_(lifetimes(graph, order, lanes)),
        alignment_(alignment),
        buffer_of_(lives_.size(), kNone) {}

  std::vector<Buffer> run(const std::vector<NodeId>& order) {
    for (size_t i = 0; i < lives_.size(); ++i) {
      if (graph_.tensors()[i].role == Role::kInput) open(static_cast<TensorId>(i));
    }
    for (int64_t step = 0; step < static_cast<int64_t>(order.size()); ++step) {
      const Node& node = graph_.node(order[static_cast<size_t>(step)]);
      joined_.clear();
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        const TensorId id = node.outputs[o];
        if (id == kNoTensor) continue;
        const size_t buffer = buffer_to_share(node, static_cast<int64_t>(o), step);
        buffer == kNone ? open(id) : join(id, buffer);
      }
    }
    return std::move(buffers_);
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  void open(TensorId id) {
    const auto index = static_cast<size_t>(id);
    buffer_of_[index] = buffers_.size();
    buffers_.push_back({{id},
                        round_up(graph_.tensor(id).stored_bytes(), alignment_),
                        lives_[index].first,
                        lives_[index].last});
  }
  void join(TensorId id, size_t buffer) {
    buffer_of_[static_cast<size_t>(id)] = buffer;
    joined_.push_back(buffer);
    Buffer& b = buffers_[buffer];
    b.tensors.push_back(id);
    b.last = std::max(b.last, lives_[static_cast<size_t>(id)].last);
  }

  /// Returns the buffer of an input that the output may use: any input of which the output is a
  /// view, or a computed input whose buffer nothing reads after this step.
  size_t buffer_to_share(const Node& node, int64_t output, int64_t step) const {
    const TensorInfo& out = graph_.tensor(node.outputs[static_cast<size_t>(output)]);
    for (const auto& [o, i] : node.op->may_alias(node)) {
      if (o != output || i >= static_cast<int64_t>(node.inputs.size())) continue;
      const TensorId id = node.inputs[static_cast<size_t>(i)];
      if (id == kNoTensor) continue;
      const size_t buffer = buffer_of_[static_cast<size_t>(id)];
      if (buffer == kNone || std::ranges::count(joined_, buffer) > 0) continue;
      const TensorInfo& in = graph_.tensor(id);
      if (in.type.bytes() != out.type.bytes() || in.type.dtype != out.type.dtype) continue;
      if (in.layout != out.layout || in.storage != out.storage) continue;
      if (is_view(node)) return buffer;
      if (in.producer == kNoNode || buffers_[buffer].last != step) continue;
      const auto inside = std::ranges::count_if(node.inputs, [&](TensorId other) {
        return other != kNoTensor && buffer_of_[static_cast<size_t>(other)] == buffer;
      });
      if (inside == 1) return buffer;
    }
    return kNone;
  }

  const Graph& graph_;
  const std::vector<Lifetime> lives_;
  const int64_t alignment_;
  std::vector<size_t> buffer_of_;  // by tensor: its buffer
  std::vector<size_t> joined_;     // buffers that outputs of this step have joined
  std::vector<Buffer> buffers_;
};

}  // namespace

bool is_view(const Node& node) { return node.op->precision_rule().moves; }

std::vector<Buffer> find_buffers(const Graph& graph, const std::vector<NodeId>& order,
                                 int64_t alignment, const std::vector<LaneStep>& lanes) {
  return BufferFinder(graph, order, alignment, lanes).run(order);
}

}  // namespace trainyard
