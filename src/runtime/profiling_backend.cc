#include "src/runtime/profiling_backend.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "src/ops/tf32.h"

namespace trainyard {

class TimedKernel final : public Kernel {
 public:
  TimedKernel(std::unique_ptr<Kernel> kernel, ProfilingBackend& backend, size_t node)
      : kernel_(std::move(kernel)), backend_(backend), node_(node) {}
  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  bool accepts_stored_types() const override { return kernel_->accepts_stored_types(); }
  void run(const KernelArgs& args) override {
    if (!backend_.is_on_) return kernel_->run(args);
    if (!backend_.at_point_) backend_.mark_point();
    const size_t begin = backend_.points_ - 1;
    kernel_->run(args);
    backend_.mark_point();
    backend_.spans_.push_back({node_, begin, backend_.points_ - 1});
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  ProfilingBackend& backend_;
  size_t node_;
};

class TimedRecording final : public Recording {
 public:
  TimedRecording(std::unique_ptr<Recording> recording, std::function<void()> submit,
                 ProfilingBackend& backend)
      : recording_(std::move(recording)), submit_(std::move(submit)), backend_(backend) {}
  void replay() override { backend_.is_on_ ? submit_() : recording_->replay(); }

 private:
  std::unique_ptr<Recording> recording_;
  std::function<void()> submit_;
  ProfilingBackend& backend_;
};

NodeWork work_of(const Graph& graph, const Node& node) {
  NodeWork work{node.name, node.op->type(), node.phase, node.op->cost(graph, node)};
  work.multiplies_tf32 = allows_tf32(node);
  for (const int64_t i : node.op->precision_rule().factors) {
    const auto at = static_cast<size_t>(i);
    if (at >= node.inputs.size() || node.inputs[at] == kNoTensor) continue;
    work.multiplies_half |= graph.tensor(node.inputs[at]).is_half();
  }
  return work;
}

double least_seconds(const NodeWork& work, const DevicePeak& peak) {
  double flops = work.multiplies_half ? peak.half_flops : peak.f32_flops;
  if (work.multiplies_tf32 && peak.tf32_flops > 0) flops = peak.tf32_flops;
  double seconds = 0;
  if (flops > 0) seconds = static_cast<double>(work.cost.flops) / flops;
  if (peak.bytes > 0) {
    seconds = std::max(seconds, static_cast<double>(work.cost.bytes) / peak.bytes);
  }
  return seconds;
}

void ProfilingBackend::begin() {
  if (stopwatch_ == nullptr) stopwatch_ = make_stopwatch();
  spans_.clear();
  points_ = 0;
  at_point_ = false;
  is_on_ = true;
}

std::vector<NodeRun> ProfilingBackend::end() {
  is_on_ = false;
  const std::vector<double> seconds = stopwatch_->take();
  std::vector<NodeRun> runs;
  for (const Span& s : spans_) runs.push_back({s.node, seconds.at(s.begin), seconds.at(s.end)});
  return runs;
}

std::unique_ptr<Kernel> ProfilingBackend::prepare(const Graph& graph, const Node& node) {
  nodes_.push_back(work_of(graph, node));
  return std::make_unique<TimedKernel>(ForwardingBackend::prepare(graph, node), *this,
                                       nodes_.size() - 1);
}

std::unique_ptr<Kernel> ProfilingBackend::prepare_group(const Graph& graph,
                                                        std::span<const NodeId> nodes) {
  std::unique_ptr<Kernel> group = ForwardingBackend::prepare_group(graph, nodes);
  if (group == nullptr) return nullptr;
  NodeWork work = work_of(graph, graph.node(nodes.front()));
  for (const NodeId k : nodes.subspan(1)) {
    const NodeWork more = work_of(graph, graph.node(k));
    work.cost.flops += more.cost.flops;
    work.cost.bytes += more.cost.bytes;
  }
  work.name += " and " + std::to_string(nodes.size() - 1) + " more";
  nodes_.push_back(std::move(work));
  return std::make_unique<TimedKernel>(std::move(group), *this, nodes_.size() - 1);
}

std::unique_ptr<Recording> ProfilingBackend::record(const std::function<void()>& submit) {
  std::unique_ptr<Recording> recording = ForwardingBackend::record(submit);
  if (recording == nullptr) return nullptr;
  return std::make_unique<TimedRecording>(std::move(recording), submit, *this);
}

void ProfilingBackend::mark_point() {
  if (points_ == 0) first_point_ = std::chrono::steady_clock::now();
  stopwatch_->mark();
  ++points_;
  at_point_ = true;
}

}  // namespace trainyard
