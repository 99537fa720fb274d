// src/data/ingest/raw_columns.h: finds out which columns rows to predict have, from their first
// row: a header, or values whose number tells their columns.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/schema.h"

namespace trainyard {

/// Returns the schema with generated names c0, c1, ... for the pixels of images that had none.
DatasetSchema with_columns(const DatasetSchema& schema);

/// Returns whether the first row is a header. Values hardly ever equal columns' names, so few names
/// suffice, and a header with missing or misspelled names is still recognized. `schema` must have
/// column names, as with_columns() returns it.
bool is_header(const DatasetSchema& schema, std::span<const std::string_view> fields);

/// Returns the names of the columns of rows without a header, determined by their number: the
/// features with or without the target, or all columns of the training data. Refuses any other
/// number and says what is expected.
Result<std::vector<std::string>> names_by_position(const DatasetSchema& schema,
                                                   std::span<const std::string_view> fields,
                                                   const std::string& what);

}  // namespace trainyard
