// src/data/table/csv_schema.h: from the columns of a table to a schema, and from a schema to the
// meaning of each column of another file.
#pragma once

#include <string>
#include <vector>

#include "src/data/table/csv_columns.h"
#include "src/data/table/row_filler.h"

namespace trainyard {

/// How rows of text become tokens. `format` is the options' name in messages, "csv".
Status check_row_text(const std::string& format, const std::string& tokenizer,
                      int64_t vocabulary_size, int64_t max_length);

/// The options against each other and against the columns that the training file has.
Status check_options(const CsvOptions& options, const std::vector<std::string>& columns);

/// The schema that the training file asks for; categories and classes are still empty. A column is
/// numeric if at least half of its values are numbers: the others are then mistakes, which the
/// second pass names.
Result<DatasetSchema> build_schema(const CsvOptions& options, const CsvScan& scan);

/// What a target is: `wish` is "class", "numeric" or "", by its cells and how many of them differ.
TargetSchema::Kind infer_target(const std::string& wish, const ColumnCounts& counts,
                                size_t different_values);

enum class TargetUse : uint8_t { kNeeded, kIgnored };

/// What each column of one file is. `names` are that file's columns, in its own order.
Result<RowFiller::Layout> build_layout(const DatasetSchema& schema,
                                       const std::vector<std::string>& names,
                                       const std::string& what, TargetUse target_use);

}  // namespace trainyard
