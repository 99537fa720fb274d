// src/planning/frozen_storage.h: how parameters that are not trained are stored
// (recipe.frozen_storage).
#pragma once

#include <set>
#include <string>

#include "src/graph/graph.h"
#include "src/job/recipe.h"
#include "src/plan/device_traits.h"
#include "src/plan/program.h"

namespace trainyard {

/// Sets the storage of the parameters in `frozen`. With `auto`, those that begin with 16-bit
/// numbers of the file of initial weights (InitialWeights::tensors) keep their type, so that no
/// value is rounded. A rank's part of a parameter is never stored in 16 bits, and neither is any on
/// a GPU, whose products need operands of one type.
///
/// Parameters that are stored exactly as in the file, at a multiple of kMappedAlignment bytes, are
/// mapped from it: the jobs of a host then share their memory. Others are copied.
void store_frozen(const Recipe& recipe, const std::set<TensorId>& frozen, Processor processor,
                  Graph& graph);

/// Returns a digest of the name of the file of initial weights and its parts that the program maps;
/// empty if it maps none.
std::string mapped_parts(const Program& program, const std::string& file);

}  // namespace trainyard
