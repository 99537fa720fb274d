// src/data/warnings.h: finds problems of a dataset's training rows that are not refused: columns of
// identifiers, constant columns, columns that reveal the target, rare classes, and test rows that
// equal training rows.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "src/data/schema.h"
#include "src/data/table/column_facts.h"
#include "src/data/typed_rows.h"

namespace trainyard {

/// Classes with fewer training rows are reported.
inline constexpr int64_t kClassRowsMin = 10;
inline constexpr const char* kRareClasses = "RARE_CLASSES";  // the key of that warning

/// Returns the warning about classes with few training rows, `class_rows` by class.
std::optional<DataWarning> find_rare_classes(const DatasetSchema& schema,
                                             std::span<const int64_t> class_rows);

/// Returns the facts about a table's feature columns, except text columns and the parts of dates.
std::vector<ColumnFacts> find_column_facts(const DatasetSchema& schema, const DatasetStatistics& s,
                                           const TypedRows& train);

/// Finds the warnings for typed rows of any format. Makes one pass over the numbers, in which most
/// columns are ruled out early, and hashes all rows if there is a test set. For streamed images
/// only the classes are checked. `options` is as in describe() (column_facts.h).
std::vector<DataWarning> find_warnings(const DatasetSchema& schema, const DatasetStatistics& s,
                                       const TypedRows& train, const TypedRows& test,
                                       std::string_view options);

}  // namespace trainyard
