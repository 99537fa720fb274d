// src/plan/program.h: a graph in execution order with every tensor's place in memory. Pure data: it
// is computed without a device, and the daemon computes it to know a job's needs.
#pragma once

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "kernels/alignment.h"
#include "src/base/result.h"
#include "src/graph/graph.h"
#include "src/passes/gather_parameters.h"
#include "src/passes/passes.h"

namespace trainyard {

/// The memory of a tensor. The persistent segment holds parameters, state, optimizer state and
/// gradient sums and is shared by all programs of a job (train, evaluate); the transient one is
/// laid out per program.
enum class Segment : uint8_t { kPersistent, kTransient };

struct Placement {
  Segment segment = Segment::kTransient;
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;  // padded to the program's alignment
};

/// Bytes by purpose, each padded to the program's alignment; they sum to the arena's size. Inputs,
/// gradients of parameters and activations share the transient segment: each is counted as of the
/// step where most is live, and what packing loses to gaps is counted with the activations.
struct MemoryBreakdown {
  int64_t parameter_bytes = 0;
  int64_t state_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t gradient_bytes = 0;    // of parameters, and their sums over micro-batches
  int64_t activation_bytes = 0;  // activations and their gradients, after packing
  int64_t input_bytes = 0;
  int64_t workspace_bytes = 0;  // filled when a backend has prepared the kernels
  int64_t total() const {
    return parameter_bytes + state_bytes + optimizer_bytes + gradient_bytes + activation_bytes +
           input_bytes + workspace_bytes;
  }
};

/// Layout of the persistent segment, by tensor name; later programs of the job must agree with it.
struct PersistentLayout {
  std::map<std::string, Placement, std::less<>> by_name;
  int64_t size_bytes = 0;
  int64_t alignment = kHostAlignment;
};

struct Program {
  Graph graph;
  std::vector<NodeId> order;           // every node once
  std::vector<Placement> placements;   // by TensorId
  int64_t alignment = kHostAlignment;  // of every offset and size
  int64_t persistent_bytes = 0;
  int64_t transient_bytes = 0;
  MemoryBreakdown memory;
  int64_t flops = 0;  // one run
  int64_t bytes = 0;

  std::string dump_program() const;  // one step per line with its buffers
  std::string dump_memory() const;   // one buffer per line with offset, size, first and last step
};

struct CompileOptions {
  bool channels_last = true;  // let rank-4 activations be NHWC where the ops take it
  Recompute recompute = Recompute::kNone;
  Precision precision = Precision::kFp32;
  PassOptions passes = default_passes();
  Processor processor = Processor::kCpu;  // Backend::processor(), as the alignment
  int64_t alignment = kHostAlignment;     // Backend::alignment() of the device that will run it
  // Agree with an earlier program of the same job, in its alignment.
  const PersistentLayout* persistent = nullptr;
  ParameterGathers gathers = {};  // of parameters that the ranks have shards of
  /// Once it is requested, compile() soon returns a program that must not be used.
  std::stop_token stop = {};
};

/// Passes, schedule, liveness, placement. `graph` is taken over; its tensor ids stay valid, though
/// a pass may have removed an unmarked tensor. Inputs and marked outputs keep their memory for the
/// whole run: an input that is not written again still holds its value in the next run.
Program compile(Graph graph, const CompileOptions& options);

/// Faults if the program breaks an invariant: each node once, after what it reads; every tensor at
/// a multiple of the program's alignment; every read finds the value that was written, whatever
/// shares its memory. Written apart from compile().
void verify(const Program& program);

PersistentLayout persistent_layout(const Program& program);

}  // namespace trainyard
