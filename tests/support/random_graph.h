// tests/support/random_graph.h: training graphs of random structure, generated from a seed.
#pragma once

#include <cstdint>

#include "tests/support/graph_cases.h"

namespace trainyard::testing {

/// Returns forward, backward and update of a random network with a batch of `rows` rows: skip
/// connections, shared weights, branches, images.
CaseGraph random_training_graph(uint64_t seed, DType dtype, int64_t rows = 3);

}  // namespace trainyard::testing
