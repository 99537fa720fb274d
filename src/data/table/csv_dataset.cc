// Reads tables of CSV or JSON lines: builds the schema from the first pass and fills its arrays in
// the second.
#include <algorithm>
#include <optional>

#include "src/base/text.h"
#include "src/data/files/byte_source.h"
#include "src/data/limits.h"
#include "src/data/table/cell_warnings.h"
#include "src/data/table/column_match.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/csv_schema.h"
#include "src/data/table/row_filler.h"
#include "src/data/table/split_columns.h"
#include "src/data/table/table_fill.h"
#include "src/data/table/table_reader.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

using RoleKind = ColumnRole::Kind;

/// Makes another pass over the training file to find the tokenizer's pieces. Not needed for bytes.
Status learn_vocabulary(const CsvOptions& options, const CellReader& cells,
                        const std::filesystem::path& path, const std::vector<std::string>& names,
                        DatasetSchema& schema) {
  if (schema.text.tokenizer == TokenizerKind::kByte) return {};
  std::vector<size_t> columns;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::find(options.text, names[i]) != options.text.end()) columns.push_back(i);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, "data"));
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table,
                   open_table(options, *source, "data", names));
  VocabularyCounter counter(schema.text.tokenizer);
  std::vector<std::string_view> fields;
  Problems problems;
  int64_t row = 0;
  const auto target = static_cast<size_t>(std::ranges::find(names, options.target) - names.begin());
  while (!problems.full()) {
    ASSIGN_OR_RETURN(const bool more, table->next(fields));
    if (!more) break;
    ++row;
    if (is_skipped(options, cells, fields, target)) continue;
    for (const size_t i : columns) {
      if (i >= fields.size()) return dataset_error("data", "the file changed while it was read");
      if (cells.is_missing_text(fields[i])) continue;
      if (const std::optional<size_t> bad = find_invalid_utf8(fields[i])) {
        problems.add(place_of("data", row, table->line(), names[i]),
                     "byte " + std::to_string(*bad) + " of the text (" +
                         quoted_value(fields[i].substr(*bad, 1)) + ") is not UTF-8");
      } else if (Status s = counter.add(fields[i], "data"); !s.ok()) {
        return s;
      }
    }
  }
  if (!problems.empty()) return problems.error();
  return counter.learn(options.vocabulary_size, options.json_lines ? "jsonl" : "csv", schema.text);
}

/// Returns whether all pixels of the file, if it has any, are whole numbers from 0 to 255.
bool has_only_bytes(const TableFile& file) {
  for (size_t i = 0; i < file.layout.roles.size(); ++i) {
    if (file.layout.roles[i].kind == RoleKind::kPixel && !file.scan.counts[i].bytes) return false;
  }
  return true;
}

/// Returns an empty codebook that learns the names that occur in `train`.
Codebook empty_codebook(const TableFile& train) {
  Codebook codebook;
  codebook.learning = true;
  codebook.categories.resize(static_cast<size_t>(train.layout.categorical));
  for (size_t i = 0; i < train.scan.names.size(); ++i) {
    const CategoryCodes codes(train.scan.counts[i].form());
    const ColumnRole& role = train.layout.roles[i];
    if (role.kind == RoleKind::kTargetClass) codebook.classes = codes;
    if (role.kind == RoleKind::kCategorical) {
      codebook.categories[static_cast<size_t>(role.index)] = codes;
    }
  }
  return codebook;
}

/// Sets missing_count of the schema's columns from `missing`, which counts by column of the file. A
/// date column of the file became several columns of the schema.
void count_missing(const RowFiller::Layout& layout, const std::vector<int64_t>& missing,
                   DatasetSchema& schema) {
  size_t column = 0;
  for (size_t i = 0; i < missing.size(); ++i) {
    const RoleKind role = layout.roles[i].kind;
    const bool one =
        role == RoleKind::kNumeric || role == RoleKind::kCategorical || role == RoleKind::kText;
    const int64_t columns = one ? 1 : layout.roles[i].parts;
    for (int64_t part = 0; part < columns; ++part) {
      schema.columns[column++].missing_count = missing[i];
    }
  }
}

/// Sorts the names and changes the codes, which were assigned in order of appearance, accordingly.
/// So the same data in another order has the same schema.
void sort_codes(DatasetSchema& schema, Codebook& codebook, TypedRows& train) {
  std::vector<int32_t> new_codes;
  size_t index = 0;
  const auto width = static_cast<size_t>(schema.categorical_columns());
  for (ColumnSchema& column : schema.columns) {
    if (column.kind != ColumnSchema::Kind::kCategorical) continue;
    column.categories = codebook.categories[index].sorted(new_codes);
    for (size_t i = index; i < train.category.size(); i += width) {
      int32_t& code = train.category[i];
      if (code >= 0) code = new_codes[static_cast<size_t>(code)];
    }
    codebook.categories[index] = CategoryCodes(column.categories);
    ++index;
  }
  schema.target.classes = codebook.classes.sorted(new_codes);
  for (int32_t& code : train.target_class) code = new_codes[static_cast<size_t>(code)];
  codebook.classes = CategoryCodes(schema.target.classes);
}

/// Returns a warning about `columns`, of which it lists the first 16.
DataWarning warning_about(const char* key, const std::vector<std::string>& columns,
                          const std::string& finding) {
  constexpr size_t kListedMax = 16;
  std::vector<std::string> listed = columns;
  if (listed.size() > kListedMax) listed.resize(kListedMax);
  return {key, std::move(listed), std::ssize(columns), finding + list_columns(columns) + "."};
}

/// Reports the columns that are left out although no option says so.
void warn_of_left_out(const CsvOptions& options, const CsvScan& train,
                      const RowFiller::Layout& test, DatasetSchema& schema) {
  std::vector<std::string> nameless;
  for (size_t i = 0; i < train.names.size(); ++i) {
    const std::string& name = train.names[i];
    if (!is_nameless_and_empty(train, i) || name == options.target) continue;
    const bool asked = std::ranges::find(options.ignore, name) != options.ignore.end();
    if (!asked) nameless.push_back(name);
  }
  if (!nameless.empty()) {
    schema.warnings.push_back(
        warning_about("NAMELESS_COLUMN", nameless,
                      "Left out, because they have neither a name nor a value, as separators at "
                      "the ends of lines make them: "));
  }
  if (!test.unknown.empty()) {
    schema.warnings.push_back(
        warning_about("TEST_COLUMNS_IGNORED", test.unknown,
                      "The test set has columns that the training data does not have. They are "
                      "not read: "));
  }
}

/// Refuses a target with a single value, from which nothing can be learned.
Status check_target(const CsvOptions& options, const TargetSchema& target, const CsvScan& scan) {
  if (target.kind == TargetSchema::Kind::kClass && target.classes.size() < 2) {
    return dataset_error(options.field("target"),
                         "column " + quoted_value(target.name) + " has a single class " +
                             quoted_value(target.classes.front()) + ", expected at least 2");
  }
  if (target.kind == TargetSchema::Kind::kNumeric && scan.rows > 1 &&
      scan.target_values.size() == 1) {
    return dataset_error(options.field("target"),
                         "column " + quoted_value(target.name) + " has the value " +
                             *scan.target_values.begin() +
                             " in all rows, expected different numbers to predict");
  }
  return {};
}

Status check_inputs(const DatasetSchema& schema) {
  int64_t inputs = 0;
  for (const ColumnSchema& c : schema.columns) {
    inputs += c.kind == ColumnSchema::Kind::kNumeric ? 1 : std::ssize(c.categories);
  }
  if (schema.kind == DatasetSchema::Kind::kTabular && inputs == 0) {
    return dataset_error("data", "every feature column is empty");
  }
  return {};
}

/// Scans the training file. A target such as "NA" is missing where the target is a number, but if
/// the targets turn out to be texts, it is a class, and the file is scanned again.
Result<CsvScan> scan_training(const CsvOptions& options, CellReader& cells,
                              const std::filesystem::path& path, const TableThreads& threads) {
  ASSIGN_OR_RETURN(CsvScan scan, scan_csv(options, cells, path, "data", threads));
  const auto target =
      static_cast<size_t>(std::ranges::find(scan.names, options.target) - scan.names.begin());
  if (target == scan.names.size()) return scan;
  const ColumnCounts& counts = scan.counts[target];
  const bool is_text = infer_target(options.target_kind, counts, scan.target_values.size()) ==
                           TargetSchema::Kind::kClass &&
                       counts.form() == CategoryForm::kTexts;
  if (!is_text) return scan;
  cells.read_target_as_text();
  if (counts.marked == 0 && scan.skipped_marks == 0) return scan;
  return scan_csv(options, cells, path, "data", threads);
}

}  // namespace

Result<TypedDataset> read_csv_dataset(const CsvOptions& options, const std::filesystem::path& train,
                                      const std::filesystem::path& test,
                                      const TableThreads& threads, TokenizerFiles tokenizer) {
  CellReader cells(options.missing, options.number_style());
  TableFile data{train, "data"}, held_out{test, "test"};
  ASSIGN_OR_RETURN(data.scan, scan_training(options, cells, data.path, threads));
  if (Status s = check_options(options, data.scan.names); !s.ok()) return std::move(s).error();
  TypedDataset result;
  DatasetSchema& schema = result.schema;
  ASSIGN_OR_RETURN(schema, build_schema(options, data.scan));
  if (!test.empty()) {
    ASSIGN_OR_RETURN(held_out.scan, scan_csv(options, cells, held_out.path, held_out.role, threads,
                                             data.scan.names));
    if (!options.json_lines && !options.header &&
        held_out.scan.names.size() != data.scan.names.size()) {
      return dataset_error("test",
                           std::to_string(held_out.scan.names.size()) + " columns, expected " +
                               std::to_string(data.scan.names.size()) + " as in the training data");
    }
    schema.test_rows = held_out.scan.rows;
  }
  schema.skipped_rows = data.scan.skipped_rows + held_out.scan.skipped_rows;
  if (schema.kind == DatasetSchema::Kind::kText) {
    const Status tokens = schema.text.tokenizer == TokenizerKind::kPretrained
                              ? set_tokenizer_files(std::move(tokenizer), schema.text)
                              : learn_vocabulary(options, cells, train, data.scan.names, schema);
    if (!tokens.ok()) return tokens.error();
  }
  for (TableFile* file : {&data, &held_out}) {
    if (file->path.empty()) continue;
    ASSIGN_OR_RETURN(file->layout,
                     build_layout(schema, file->scan.names, file->role, TargetUse::kNeeded));
  }
  // Pixels are stored as bytes if possible, which takes a quarter of the memory.
  schema.image_dtype = has_only_bytes(data) && has_only_bytes(held_out) ? DType::kU8 : DType::kF32;
  data.layout.pixel_dtype = held_out.layout.pixel_dtype = schema.image_dtype;

  Codebook codebook = empty_codebook(data);
  ASSIGN_OR_RETURN(const std::vector<int64_t> missing,
                   fill_rows(options, cells, data, threads, codebook, result.train));
  count_missing(data.layout, missing, schema);
  if (Status s = read_split_columns(options, cells, data, result); !s.ok()) {
    return std::move(s).error();
  }
  sort_codes(schema, codebook, result.train);
  if (Status s = check_target(options, schema.target, data.scan); !s.ok()) {
    return std::move(s).error();
  }
  if (Status s = check_inputs(schema); !s.ok()) return std::move(s).error();
  if (schema.kind == DatasetSchema::Kind::kTabular) {
    ASSIGN_OR_RETURN(schema.warnings,
                     find_cell_warnings(options, cells, data.path, data.scan, schema));
  }
  warn_of_left_out(options, data.scan, held_out.layout, schema);
  codebook.learning = false;
  if (!test.empty()) {
    const auto counts = fill_rows(options, cells, held_out, threads, codebook, result.test);
    if (!counts.ok()) return counts.error();
  }
  if (schema.kind == DatasetSchema::Kind::kImage && schema.image_dtype == DType::kU8) {
    result.train.image_sums = sum_images(result.train.image_u8, result.train.rows, schema.image);
    result.test.image_sums = sum_images(result.test.image_u8, result.test.rows, schema.image);
  }
  return result;
}

}  // namespace trainyard
