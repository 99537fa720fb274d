// src/planning/whole_tables.h: warns of embedding tables of which a step reads few rows but updates
// all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/planning/programs.h"

namespace trainyard {

/// Adds a warning for each table for which `sparse: true` would save more than half of the bytes
/// that a step reads and writes.
void warn_of_whole_tables(const RunPrograms& programs, const Recipe& recipe, int64_t ranks,
                          std::vector<std::string>& warnings);

}  // namespace trainyard
