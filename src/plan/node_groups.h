// src/plan/node_groups.h: which nodes of a program may run as one kernel
// (Backend::prepare_group).
#pragma once

#include <cstddef>

#include "src/plan/program.h"

namespace trainyard {

/// Returns the number of nodes, from step `first` of the program on, that may run as one kernel:
/// updates of one kind, or casts, in one lane, whose memory does not overlap. At least 1.
size_t joinable_nodes(const Program& program, size_t first);

}  // namespace trainyard
