// src/data/table/csv_schema.h: builds a schema from the columns of a table, and finds the role of
// each column of a file in a given schema.
#pragma once

#include <string>
#include <vector>

#include "src/data/table/csv_columns.h"
#include "src/data/table/row_filler.h"

namespace trainyard {

/// Checks the options by which rows of text become tokens. `format` is the name of the options in
/// messages, "csv".
Status check_row_text(const std::string& format, const std::string& tokenizer,
                      int64_t vocabulary_size, int64_t max_length);

/// Checks the options against each other and against the columns of the training file.
Status check_options(const CsvOptions& options, const std::vector<std::string>& columns);

/// Returns whether the column has neither a name nor a value, as separators at the ends of all
/// lines make it. Such columns are ignored.
bool is_nameless_and_empty(const CsvScan& scan, size_t column);

/// Returns the schema for the training file, with categories and classes still empty. A column is
/// numeric if at least half of its values are numbers; the second pass then reports its other
/// values as mistakes.
Result<DatasetSchema> build_schema(const CsvOptions& options, const CsvScan& scan);

/// Returns the kind of a target: `wish` if it is "class" or "numeric", else inferred from the
/// counts of its cells and the number of different values.
TargetSchema::Kind infer_target(const std::string& wish, const ColumnCounts& counts,
                                size_t different_values);

enum class TargetUse : uint8_t { kNeeded, kIgnored };

/// Returns the role of each column of a file in the schema. `names` are the file's columns in its
/// own order; those that the schema does not have are ignored and listed in the layout. Refuses a
/// file without one of the columns that the schema uses, and names all that are missing.
Result<RowFiller::Layout> build_layout(const DatasetSchema& schema,
                                       const std::vector<std::string>& names,
                                       const std::string& what, TargetUse target_use);

}  // namespace trainyard
