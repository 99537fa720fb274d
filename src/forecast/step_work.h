// src/forecast/step_work.h: the quantities that the time of a step depends on, computed from its
// programs. Pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/plan/device_traits.h"
#include "src/plan/program.h"

namespace trainyard {

/// The op of a node that does nothing, since its result has the same address as its operand.
inline constexpr std::string_view kViewOp = "(view)";

/// The work of one node.
struct NodeWorkload {
  // The op's type. A product fused with an activation has the product's type. Variants that compute
  // differently have names of their own: "ConvGrad/no_dx" without the gradient of the input,
  // "Conv/groups".
  std::string op;
  double flops = 0;
  double bytes = 0;  // bytes read and written (Op::cost)
  // How many of these bytes are no longer in a cache near the core, and how many in no cache at
  // all, because so much other memory was touched since their last use.
  double far_bytes = 0, memory_bytes = 0;
  // The sizes of a product [m, k] x [k, n], or of the product that a convolution is equivalent to;
  // 0 for every other op.
  double m = 0, n = 0, k = 0;
  double serial = 1;  // parts that must run one after another: time steps of a recurrent layer

  auto operator<=>(const NodeWorkload&) const = default;
  /// Adds the work of a node that runs in the same kernel.
  NodeWorkload& operator+=(const NodeWorkload& other);
};

struct WorkItem {
  NodeWorkload node;
  double count = 1;  // equal nodes in one step
};

/// The exchanges of one of a job's devices with the others in one step.
struct LinkWork {
  double exchanges = 0;  // count; they run one after another
  double bytes = 0;      // sent by the device
};

struct StepWork {
  std::vector<WorkItem> items;
  Processor processor = Processor::kCpu;
  double steps_of_host = 1;  // programs that the host submits: one per micro-batch, and an update
  double input_bytes = 0;    // size of a batch
  // Exchanges between several devices. Their work in a device's own memory is part of `items`.
  LinkWork sent_overlapped;  // overlaps with the step's computation
  LinkWork sent_exposed;     // the step waits for it
  // Whether the exchanges go over the network between nodes instead of a link inside one node.
  bool over_network = false;
  // SHA-256 of the nodes with their shapes. It is equal for steps with the same computation,
  // however their data, learning rate and job length differ.
  std::string digest;

  /// Returns the FLOPs of one step.
  double flops() const;
};

/// Returns the workloads of a program's nodes, in the order of execution.
std::vector<NodeWorkload> node_workloads(const Program& program);

/// A program and how often it runs in a step.
struct ProgramRuns {
  const Program* program = nullptr;
  double runs = 1;
};
/// Returns the work of a step that runs these programs. For a GPU, nodes that one kernel can run
/// are counted as one (src/plan/node_groups.h).
StepWork step_work(const std::vector<ProgramRuns>& programs, double input_bytes,
                   Processor processor = Processor::kCpu);

}  // namespace trainyard
