// src/plan/node_groups.h: which nodes of a program may run as one kernel
// (Backend::prepare_group).
#pragma once

#include <cstddef>

#include "src/plan/program.h"

namespace trainyard {

/// How many nodes from `first` on, of the program's order, may run at once: updates of one kind, or
/// casts, that do not meet in memory. At least 1.
size_t joinable_nodes(const Program& program, size_t first);

}  // namespace trainyard
