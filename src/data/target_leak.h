// src/data/target_leak.h: finds single columns of a table from which the target follows. Most often
// such a column is derived from the target or became known only after it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset.h"

namespace trainyard {

struct TargetLeak {
  std::string column;
  int64_t rows = 0;     // the number of rows for which the target follows from the column
  std::string finding;  // end of the warning's sentence after the column's name
};

/// For a target of classes, finds columns of at most 1000 different values in which each value
/// occurs with one class only, apart from a few rows, and columns of numbers whose ranges in the
/// classes do not overlap. For a numeric target, finds columns with a correlation above 0.999, and
/// those with which the target only rises or only falls, such as its logarithm or its square. With
/// few rows, or nearly as many values as rows, nothing can be concluded, and nothing is reported.
/// Makes one pass; most columns are ruled out after a few rows.
std::vector<TargetLeak> find_target_leaks(const DatasetSchema& schema, const DatasetStatistics& s,
                                          const Partition& train);

}  // namespace trainyard
