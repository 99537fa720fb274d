// src/data/warnings.h: traps in a dataset's training rows that nothing refuses: identifiers,
// constants, a column that tells the target, classes without rows, test rows that are trained on.
#pragma once

#include <string_view>
#include <vector>

#include "src/data/schema.h"
#include "src/data/table/column_facts.h"
#include "src/data/typed_rows.h"

namespace trainyard {

/// A class with fewer training rows is told.
inline constexpr int64_t kClassRowsMin = 10;

/// Of a table: its feature columns, without those of text and the parts of dates.
std::vector<ColumnFacts> find_column_facts(const DatasetSchema& schema, const DatasetStatistics& s,
                                           const TypedRows& train);

/// Of all formats, by the typed rows: numbers are those of 32 bits. One pass over them, which most
/// columns leave early, and beside it the hashes of all rows where there is a test set. Streamed
/// images are only looked at by their classes. `options`: as of describe() (column_facts.h).
std::vector<DataWarning> find_warnings(const DatasetSchema& schema, const DatasetStatistics& s,
                                       const TypedRows& train, const TypedRows& test,
                                       std::string_view options);

}  // namespace trainyard
