// src/planning/whole_tables.h: tables of which a step reads few rows and moves all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/planning/programs.h"

namespace trainyard {

/// A sentence for each table whose rows take so much of what a step moves that `sparse: true` would
/// save most of it.
void warn_of_whole_tables(const RunPrograms& programs, const Recipe& recipe, int64_t ranks,
                          std::vector<std::string>& warnings);

}  // namespace trainyard
