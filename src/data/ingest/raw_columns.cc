#include "src/data/ingest/raw_columns.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "src/data/problems.h"
#include "src/data/table/column_match.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/separators.h"

namespace trainyard {
namespace {

using NameSet = std::unordered_set<std::string_view>;

/// Returns the columns of the training data without the ignored ones, and without the target unless
/// `with_target`.
std::vector<std::string> used_columns(const DatasetSchema& schema, bool with_target) {
  const NameSet ignored(schema.ignored_columns.begin(), schema.ignored_columns.end());
  std::vector<std::string> names;
  for (const std::string& name : schema.source_columns) {
    if (!ignored.contains(name) && (with_target || name != schema.target.name)) {
      names.push_back(name);
    }
  }
  return names;
}

/// Returns the columns of rows with `count` values; nullopt if the number fits none.
std::optional<std::vector<std::string>> find_by_count(const DatasetSchema& schema, size_t count) {
  for (const bool with_target : {false, true}) {
    std::vector<std::string> names = used_columns(schema, with_target);
    if (names.size() == count) return names;
    if (!with_target && schema.source_columns.size() == count) return schema.source_columns;
  }
  return std::nullopt;
}

/// Returns whether the fields are texts above all columns of numbers, of which there are at least
/// two. Then they are names that the training data does not have.
bool is_text_above_numbers(const DatasetSchema& schema, const std::vector<std::string>& names,
                           std::span<const std::string_view> fields) {
  const bool image = schema.kind == DatasetSchema::Kind::kImage;
  NameSet numeric;
  for (const ColumnSchema& column : schema.columns) {
    if (column.kind == ColumnSchema::Kind::kNumeric && column.date.empty()) {
      numeric.insert(column.name);
    }
  }
  const CellReader cells(schema.missing_values, schema.number_style);
  size_t above = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!image && !numeric.contains(names[i])) continue;
    if (cells.read(fields[i]).kind != Cell::Kind::kText) return false;
    ++above;
  }
  return above >= 2;
}

/// Returns the number of different columns among the matches.
int64_t count_columns(const std::vector<size_t>& matches) {
  std::unordered_set<size_t> found(matches.begin(), matches.end());
  found.erase(kNoColumn);
  return std::ssize(found);
}

/// Returns whether numbers among the fields must be values, although columns may be named by
/// numbers: one occurs twice, or one names no column and no text does. `matches` has a column for
/// each field.
bool has_number_values(std::span<const std::string_view> fields,
                       const std::vector<size_t>& matches) {
  const CellReader cells;
  NameSet numbers;
  bool other_number = false, known_text = false;
  for (size_t i = 0; i < fields.size(); ++i) {
    const bool known = matches[i] != kNoColumn;
    if (!cells.read(fields[i]).is_number()) {
      known_text |= known;
    } else if (!numbers.insert(fields[i]).second) {
      return true;
    } else {
      other_number |= !known;
    }
  }
  return other_number && !known_text;
}

/// Returns whether all fields are texts, as names are.
bool has_only_texts(const DatasetSchema& schema, std::span<const std::string_view> fields) {
  const CellReader cells(schema.missing_values, schema.number_style);
  return std::ranges::all_of(
      fields, [&](std::string_view field) { return cells.read(field).kind == Cell::Kind::kText; });
}

std::string expected_rows(const DatasetSchema& schema) {
  const std::vector<std::string> features = used_columns(schema, /*with_target=*/false);
  if (schema.kind == DatasetSchema::Kind::kImage) {
    return "images " + schema.image.to_string() + ": JPEG or PNG files, IDX, or CSV with the " +
           std::to_string(features.size()) + " pixels of an image in each row";
  }
  const std::string columns = features.size() == 1 ? "the column " + list_columns(features)
                                                   : "the " + std::to_string(features.size()) +
                                                         " columns " + list_columns(features);
  return columns + (schema.target.name.empty() ? "" : ", with or without the target") +
         ", in this order or below a header with their names";
}

}  // namespace

DatasetSchema with_columns(const DatasetSchema& schema) {
  DatasetSchema named = schema;
  if (!named.source_columns.empty()) return named;
  named.source_columns = numbered_names(static_cast<size_t>(schema.image.elements()));
  named.target.name.clear();
  return named;
}

bool is_header(const DatasetSchema& schema, std::span<const std::string_view> fields) {
  const std::vector<std::string> names(fields.begin(), fields.end());
  const std::vector<std::string> features = used_columns(schema, /*with_target=*/false);
  const std::vector<size_t> matches = match_columns(names, schema.source_columns);
  if (has_number_values(fields, matches)) return false;
  const int64_t known = count_columns(matches);
  if (known == 0 && schema.kind == DatasetSchema::Kind::kText) return false;
  if (2 * count_columns(match_columns(names, features)) >= std::ssize(features)) return true;
  if (known > 0 && 2 * known >= std::ssize(fields)) return true;
  if (const auto by_count = find_by_count(schema, fields.size())) {
    return is_text_above_numbers(schema, *by_count, fields);
  }
  if (known > 0) return true;
  const bool other_separator = fields.size() == 1 && find_separator(fields[0]) != nullptr;
  return schema.kind == DatasetSchema::Kind::kTabular && !other_separator &&
         has_only_texts(schema, fields);
}

Result<std::vector<std::string>> names_by_position(const DatasetSchema& schema,
                                                   std::span<const std::string_view> fields,
                                                   const std::string& what) {
  if (std::optional<std::vector<std::string>> names = find_by_count(schema, fields.size())) {
    return *std::move(names);
  }
  if (const Separator* found = fields.size() == 1 ? find_separator(fields[0]) : nullptr) {
    return dataset_error(
        what,
        "the fields are separated by " + std::string(found->plural) + ", expected " +
            (schema.delimiter == ',' ? "commas" : "commas, or the separator of the training data"));
  }
  return dataset_error(what, field_count(fields.size()) + " in the first row; the model expects " +
                                 expected_rows(schema));
}

}  // namespace trainyard
