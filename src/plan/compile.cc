#include <algorithm>

#include "src/base/check.h"
#include "src/graph/op.h"
#include "src/passes/split_gradients.h"
#include "src/plan/liveness.h"
#include "src/plan/placement.h"
#include "src/plan/program.h"
#include "src/plan/schedule.h"
#include "src/plan/short_step.h"

namespace trainyard {
namespace {

/// Places parameters, state, optimizer state, accumulators, copies and caches one after another,
/// except for mapped parameters, which stay where they are in their file.
/// Tensors of an earlier program of the job keep their place, and new ones follow.
void place_persistent(Program& program, const PersistentLayout* earlier) {
  int64_t end = earlier == nullptr ? 0 : earlier->size_bytes;
  MemoryBreakdown& memory = program.memory;
  for (const Role role : {Role::kParameter, Role::kState, Role::kOptimizerState, Role::kAccumulator,
                          Role::kCopy, Role::kCache}) {
    for (size_t i = 0; i < program.graph.tensors().size(); ++i) {
      const TensorInfo& t = program.graph.tensors()[i];
      if (t.role != role) continue;
      if (t.is_mapped()) {
        program.placements[i] = {Segment::kMapped, t.mapped_at, t.stored_bytes()};
        memory.mapped_bytes += t.stored_bytes();
        continue;
      }
      Placement place{Segment::kPersistent, end, round_up(t.stored_bytes(), program.alignment)};
      if (earlier != nullptr && earlier->by_name.contains(t.name)) {
        place.offset_bytes = earlier->by_name.at(t.name).offset_bytes;
        TRAINYARD_CHECK(earlier->by_name.at(t.name).size_bytes == place.size_bytes,
                        t.name + " has another size in an earlier program of the job");
      } else {
        end += place.size_bytes;
      }
      program.placements[i] = place;
      (role == Role::kParameter     ? memory.parameter_bytes
       : role == Role::kState       ? memory.state_bytes
       : role == Role::kCache       ? memory.state_bytes
       : role == Role::kAccumulator ? memory.gradient_bytes
       : role == Role::kCopy        ? memory.activation_bytes
                                    : memory.optimizer_bytes) += place.size_bytes;
    }
  }
  program.persistent_bytes = end;
  // Tensors of an earlier program that this one does not have are optimizer state.
  memory.optimizer_bytes = end - memory.parameter_bytes - memory.state_bytes -
                           memory.gradient_bytes - memory.activation_bytes;
}

/// Splits the transient segment by purpose, as of the step at which most memory is live.
void account_transient(Program& program, const std::vector<Buffer>& buffers) {
  // Indexed by step: the difference from the previous step.
  std::vector<MemoryBreakdown> changes(program.order.size() + 2);
  for (const Buffer& b : buffers) {
    const Role role = program.graph.tensor(b.tensors.front()).role;
    int64_t MemoryBreakdown::*const purpose = role == Role::kInput ? &MemoryBreakdown::input_bytes
                                              : role == Role::kGradient
                                                  ? &MemoryBreakdown::gradient_bytes
                                                  : &MemoryBreakdown::activation_bytes;
    changes[static_cast<size_t>(b.first)].*purpose += b.size_bytes;
    changes[static_cast<size_t>(b.last) + 1].*purpose -= b.size_bytes;
  }
  MemoryBreakdown now, at_peak;
  int64_t most = -1;
  for (size_t step = 0; step <= program.order.size(); ++step) {
    now.input_bytes += changes[step].input_bytes;
    now.gradient_bytes += changes[step].gradient_bytes;
    now.activation_bytes += changes[step].activation_bytes;
    if (now.total() > most) {
      most = now.total();
      at_peak = now;
    }
  }
  program.memory.input_bytes = at_peak.input_bytes;
  program.memory.gradient_bytes += at_peak.gradient_bytes;  // in addition to the accumulators
  program.memory.activation_bytes +=  // in addition to the copies of parameters
      program.transient_bytes - at_peak.input_bytes - at_peak.gradient_bytes;
}

/// Two lanes may make the transient segment larger by this much. Otherwise the step has one.
constexpr int64_t kLanesBytesMax = int64_t{32} << 20;

/// Gives the step one lane if two need too much memory.
void limit_lanes(Program& program, const std::stop_token& stop) {
  if (program.lanes.empty()) return;
  const auto bytes = [&](const std::vector<LaneStep>& lanes) {
    const auto buffers = find_buffers(program.graph, program.order, program.alignment, lanes);
    return place_buffers(buffers, stop).size_bytes;
  };
  if (bytes(program.lanes) - bytes({}) > kLanesBytesMax) program.lanes.clear();
}

void place_transient(Program& program, const std::stop_token& stop) {
  limit_lanes(program, stop);
  const std::vector<Buffer> buffers =
      find_buffers(program.graph, program.order, program.alignment, program.lanes);
  const PlacedBuffers placed = place_buffers(buffers, stop);
  for (size_t b = 0; b < buffers.size(); ++b) {
    for (const TensorId id : buffers[b].tensors) {
      program.placements[static_cast<size_t>(id)] = {Segment::kTransient, placed.offsets[b],
                                                     buffers[b].size_bytes};
    }
  }
  program.transient_bytes = placed.size_bytes;
  account_transient(program, buffers);
}

/// Stores parameters as an earlier program of the job does, and where it does if they are mapped.
void store_like(Graph& graph, const PersistentLayout& earlier) {
  for (TensorId id = 0; id < static_cast<TensorId>(graph.tensors().size()); ++id) {
    const TensorInfo& t = graph.tensor(id);
    if (t.role != Role::kParameter) continue;
    const auto known = earlier.by_name.find(t.name);
    if (known == earlier.by_name.end()) continue;
    graph.set_storage(id, known->second.storage);
    if (known->second.segment == Segment::kMapped) graph.set_mapped(id, known->second.offset_bytes);
  }
}

bool is_short(const Graph& graph) {
  Cost sum;
  for (const Node& node : graph.nodes()) {
    const Cost cost = node.op->cost(graph, node);
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
  }
  return estimated_gpu_seconds(sum.flops, sum.bytes, std::ssize(graph.nodes())) <=
         kShortStepSeconds;
}

}  // namespace

Program compile(Graph graph, const CompileOptions& options) {
  Program program;
  program.graph = std::move(graph);
  if (options.persistent != nullptr) store_like(program.graph, *options.persistent);
  PassOptions passes = options.passes;
  passes.layouts = passes.layouts && options.channels_last;
  run_passes(program.graph, passes, options.recompute, options.precision, options.processor);
  gather_parameters(program.graph, options.gathers);
  const bool has_lanes = options.two_lanes && options.passes.lanes && is_short(program.graph);
  if (has_lanes) split_gradients(program.graph);
  program.graph.verify();
  program.order = schedule(program.graph);
  if (has_lanes) program.lanes = assign_lanes(program.graph, program.order);
  program.placements.resize(program.graph.tensors().size());
  program.alignment =
      options.persistent != nullptr ? options.persistent->alignment : options.alignment;
  place_persistent(program, options.persistent);
  place_transient(program, options.stop);
  for (const Node& node : program.graph.nodes()) {
    const Cost cost = node.op->cost(program.graph, node);
    program.flops += cost.flops;
    program.bytes += cost.bytes;
  }
#ifndef NDEBUG
  if (options.stop.stop_requested()) return program;
  verify(program);
#endif
  return program;
}

PersistentLayout persistent_layout(const Program& program) {
  PersistentLayout layout;
  for (size_t i = 0; i < program.placements.size(); ++i) {
    if (program.placements[i].segment != Segment::kTransient) {
      const TensorInfo& t = program.graph.tensors()[i];
      layout.by_name[t.name] = program.placements[i];
      layout.by_name[t.name].storage = t.storage;
    }
  }
  layout.size_bytes = program.persistent_bytes;
  layout.alignment = program.alignment;
  return layout;
}

}  // namespace trainyard
