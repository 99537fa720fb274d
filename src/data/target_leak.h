// src/data/target_leak.h: single columns of a table that tell the target by themselves: most often
// it was written into them, or they were filled in afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset.h"

namespace trainyard {

struct TargetLeak {
  std::string column;
  int64_t rows = 0;     // for which it holds
  std::string finding;  // "alone tells the target: ..."
};

/// Classes: a column of at most a thousand values, each of which goes with one class, with few rows
/// that do not agree; or numbers whose ranges do not overlap between classes. Numbers: a
/// correlation above 0.999. Few rows, and columns of nearly as many values, tell nothing and are
/// not looked at. One pass; a column that does not tell the target is left after a few rows.
std::vector<TargetLeak> find_target_leaks(const DatasetSchema& schema, const DatasetStatistics& s,
                                          const Partition& train);

}  // namespace trainyard
