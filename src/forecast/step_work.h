// src/forecast/step_work.h: what the time of a step depends on, read off its programs. Pure.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/plan/device_traits.h"
#include "src/plan/program.h"

namespace trainyard {

/// The op of a node that does nothing, since its result lies where its operand does.
inline constexpr std::string_view kViewOp = "(view)";

/// The work of one node.
struct NodeWorkload {
  // The op's type, of a product with an activation that of the product. What computes otherwise has
  // a name of its own: "ConvGrad/no_dx" where the gradient of the input is left out, "Conv/groups".
  std::string op;
  double flops = 0;
  double bytes = 0;  // read and written (Op::cost)
  // Of these bytes, those that are no longer in a cache near the core, and in none at all, because
  // so much else was touched since they were.
  double far_bytes = 0, memory_bytes = 0;
  // Of a product [m, k] x [k, n], and of a convolution as one; 0 of everything else.
  double m = 0, n = 0, k = 0;
  double serial = 1;  // parts that can only run one after another: time steps of a recurrent layer

  auto operator<=>(const NodeWorkload&) const = default;
  /// Of two nodes that run as one.
  NodeWorkload& operator+=(const NodeWorkload& other);
};

struct WorkItem {
  NodeWorkload node;
  double count = 1;  // nodes alike, in one step
};

/// What the devices of a job send each other in one step, by one of them.
struct LinkWork {
  double exchanges = 0;  // one after another
  double bytes = 0;      // sent
};

struct StepWork {
  std::vector<WorkItem> items;
  Processor processor = Processor::kCpu;
  double steps_of_host = 1;  // programs that are submitted one by one: micro-batches, an update
  double input_bytes = 0;    // of a batch
  // Of several devices. What they do in their own memory for it is among the items.
  LinkWork sent_beside;  // while the step computes
  LinkWork sent_alone;   // while it waits
  // Between nodes, and not inside one.
  bool over_network = false;
  // SHA-256 of the nodes with their shapes: equal for steps that compute alike, whatever the data,
  // the learning rate and the length of the job.
  std::string digest;

  /// FLOPs of one step.
  double flops() const;
};

/// The workloads of a program's nodes, in its order.
std::vector<NodeWorkload> node_workloads(const Program& program);

/// One of a step's programs and how often it runs in a step.
struct ProgramRuns {
  const Program* program = nullptr;
  double runs = 1;
};
/// On a GPU nodes that may run as one do (src/plan/node_groups.h).
StepWork step_work(const std::vector<ProgramRuns>& programs, double input_bytes,
                   Processor processor = Processor::kCpu);

}  // namespace trainyard
