// src/plan/liveness.h: computes which tensors share a buffer, and when each buffer is in use.
#pragma once

#include <vector>

#include "src/graph/graph.h"
#include "src/plan/lanes.h"

namespace trainyard {

/// Memory that several tensors use: one after another, if ops work in place, or as views of the
/// same elements. In use during steps [first, last], both included.
struct Buffer {
  std::vector<TensorId> tensors;  // in the order of their definition
  int64_t size_bytes = 0;         // padded to the alignment
  int64_t first = 0;
  int64_t last = 0;
};

/// Returns the buffers of all tensors that are not persistent, in the order of their first tensor.
/// Inputs are in use during the whole run, marked outputs from their definition to the end. What a
/// step of the side lane reads or writes is in use until the step's work has certainly ended. Sizes
/// are padded to `alignment`.
std::vector<Buffer> find_buffers(const Graph& graph, const std::vector<NodeId>& order,
                                 int64_t alignment, const std::vector<LaneStep>& lanes = {});

/// Returns whether the node's output has the elements of its input in the same order. If layout and
/// storage are equal, both tensors share memory and nothing is copied.
bool is_view(const Node& node);

constexpr bool is_persistent(Role role) {
  return role == Role::kParameter || role == Role::kState || role == Role::kOptimizerState ||
         role == Role::kAccumulator || role == Role::kCopy || role == Role::kCache;
}
}  // namespace trainyard
