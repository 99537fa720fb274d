// src/plan/liveness.h: which tensors share a buffer, and when each buffer is in use.
#pragma once

#include <vector>

#include "src/graph/graph.h"

namespace trainyard {

/// Memory that one tensor after another uses, in place, or several names of one: steps [first,
/// last], both included.
struct Buffer {
  std::vector<TensorId> tensors;  // in order of their definition
  int64_t size_bytes = 0;         // padded
  int64_t first = 0;
  int64_t last = 0;
};

/// Buffers of all tensors that are not persistent, in order of their first tensor. Inputs and
/// marked outputs are in use to the end; inputs from the beginning. Sizes are padded to
/// `alignment`.
std::vector<Buffer> find_buffers(const Graph& graph, const std::vector<NodeId>& order,
                                 int64_t alignment);

/// The node's output has the numbers of its input in their order: where both are laid out and
/// stored alike it is a second name of the same memory, and nothing is copied.
bool is_view(const Node& node);

constexpr bool is_persistent(Role role) {
  return role == Role::kParameter || role == Role::kState || role == Role::kOptimizerState ||
         role == Role::kAccumulator;
}
}  // namespace trainyard
