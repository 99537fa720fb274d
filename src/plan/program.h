// src/plan/program.h: a graph with its execution order and the place of every tensor in memory. A
// program is pure data, computed without a device; the daemon computes it to find out a job's
// needs.
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
#include "src/plan/lanes.h"

namespace trainyard {

/// The memory segment of a tensor. The persistent segment has parameters and their copies, state,
/// optimizer state and gradient sums, and all programs of a job (train, evaluate) share it. The
/// transient segment is laid out per program. The mapped segment is the file of initial weights,
/// outside of the arena: no program writes to it.
enum class Segment : uint8_t { kPersistent, kTransient, kMapped };

struct Placement {
  Segment segment = Segment::kTransient;
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;               // padded to the program's alignment, unless mapped
  Storage storage = Storage::kAsTyped;  // of the tensor; only in a PersistentLayout
};

/// Bytes by purpose, each padded to the program's alignment. Their sum is the size of the arena,
/// to which mapped parameters do not belong.
/// Inputs, gradients of parameters and activations share the transient segment: their numbers are
/// those of the step at which most memory is live. Memory lost to gaps counts as activations.
struct MemoryBreakdown {
  int64_t parameter_bytes = 0;
  int64_t state_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t gradient_bytes = 0;  // gradients of parameters, and their sums over micro-batches
  // Activations and their gradients, including gaps, and copies of parameters in 16 bits.
  int64_t activation_bytes = 0;
  int64_t input_bytes = 0;
  int64_t workspace_bytes = 0;  // set when a backend has prepared the kernels
  int64_t mapped_bytes = 0;     // parameters in the mapped file, without padding
  int64_t total() const {
    return parameter_bytes + state_bytes + optimizer_bytes + gradient_bytes + activation_bytes +
           input_bytes + workspace_bytes;
  }
};

/// The layout of the persistent segment, by tensor name. Later programs of the job must use the
/// same, and store parameters in the same types.
struct PersistentLayout {
  std::map<std::string, Placement, std::less<>> by_name;
  int64_t size_bytes = 0;
  int64_t alignment = kHostAlignment;
};

struct Program {
  Graph graph;
  std::vector<NodeId> order;           // every node exactly once
  std::vector<LaneStep> lanes;         // by step; empty: one lane
  std::vector<Placement> placements;   // indexed by TensorId
  int64_t alignment = kHostAlignment;  // in bytes, for every offset and size
  int64_t persistent_bytes = 0;
  int64_t transient_bytes = 0;
  MemoryBreakdown memory;
  int64_t flops = 0;  // in one run
  int64_t bytes = 0;

  std::string dump_program() const;  // one line per step, with the placements of its tensors
  std::string dump_memory() const;   // one line per buffer, with offset, size, first and last step
};

struct CompileOptions {
  bool channels_last = true;  // store rank-4 activations as NHWC if the ops accept it
  Recompute recompute = Recompute::kNone;
  Precision precision = Precision::kFp32;
  PassOptions passes = default_passes();
  Processor processor = Processor::kCpu;  // the kind of device that will run the program
  // The alignment that the device of the program requires, in bytes (DeviceTraits).
  int64_t alignment = kHostAlignment;
  // Layout of an earlier program of the same job, including its alignment, which the program must
  // use.
  const PersistentLayout* persistent = nullptr;
  ParameterGathers gathers = {};  // parameters that are sharded over the ranks
  // Whether a short step runs in two lanes. Buffers then live longer, and the device needs a
  // workspace for each lane.
  bool two_lanes = false;
  /// Once a stop is requested, compile() soon returns a program that must not be used.
  std::stop_token stop = {};
};

/// Runs passes, schedule, liveness and placement. Takes over `graph`: its tensor IDs stay valid,
/// but passes may have removed unmarked tensors. Inputs and marked outputs keep their memory for
/// the whole run, so an input that is not written again has the same value in the next run.
Program compile(Graph graph, const CompileOptions& options);

/// Faults if the program breaks an invariant: each node runs once, after its inputs are computed;
/// every tensor is aligned; every read finds the value that was written, although memory is shared.
/// The implementation is independent of compile().
void verify(const Program& program);

PersistentLayout persistent_layout(const Program& program);

}  // namespace trainyard
