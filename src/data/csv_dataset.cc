// The second pass over tables, CSV or JSON lines: the rows into typed arrays.
#include <algorithm>
#include <optional>

#include "src/base/text.h"
#include "src/data/byte_source.h"
#include "src/data/csv_columns.h"
#include "src/data/csv_schema.h"
#include "src/data/limits.h"
#include "src/data/row_filler.h"
#include "src/data/table_reader.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

using RoleKind = ColumnRole::Kind;

int64_t row_bytes(const RowFiller::Layout& layout) {
  return 4 * (layout.numeric + layout.categorical + layout.text_length + 1) +
         layout.pixels * static_cast<int64_t>(size_of(layout.pixel_dtype));
}

/// A pass of its own over the training file, for the pieces that its text is made of. Bytes have
/// none to find.
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
  while (!problems.full()) {
    ASSIGN_OR_RETURN(const bool more, table->next(fields));
    if (!more) break;
    ++row;
    for (const size_t i : columns) {
      if (i >= fields.size()) return dataset_error("data", "the file changed while it was read");
      if (cells.read(fields[i]).kind == Cell::Kind::kMissing) continue;
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

/// The second pass over one file.
Result<std::vector<int64_t>> fill(const CsvOptions& options, const CellReader& cells,
                                  const std::filesystem::path& path, const std::string& what,
                                  const RowFiller::Layout& layout, int64_t rows, Codebook& codebook,
                                  TypedRows& out) {
  if (Status s = check_memory(rows * row_bytes(layout), what); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, what));
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table,
                   open_table(options, *source, what, layout.names));
  Problems problems;
  RowFiller filler(what, layout, cells, codebook, out, problems);
  filler.reserve(rows);
  std::vector<std::string_view> fields;
  const auto changed = [&] { return dataset_error(what, "the file changed while it was read"); };
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, table->next(fields));
    if (!more) break;
    if (fields.size() != layout.roles.size() || out.rows == rows) return changed();
    filler.add(fields, table->line());
    if (problems.full()) break;
  }
  if (!problems.empty()) return problems.error();
  if (out.rows != rows) return changed();
  return filler.missing();
}

/// Codes were given in order of appearance; names are stored sorted, so that equal data in another
/// order has the same schema.
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

Status check_result(const CsvOptions& options, const DatasetSchema& schema) {
  if (schema.target.kind == TargetSchema::Kind::kClass && schema.target.classes.size() < 2) {
    return dataset_error(options.field("target"),
                         "column " + quoted_value(schema.target.name) + " has a single class " +
                             quoted_value(schema.target.classes.front()) + ", expected at least 2");
  }
  int64_t inputs = 0;
  for (const ColumnSchema& c : schema.columns) {
    inputs += c.kind == ColumnSchema::Kind::kNumeric ? 1 : std::ssize(c.categories);
  }
  if (schema.kind == DatasetSchema::Kind::kTabular && inputs == 0) {
    return dataset_error("data", "every feature column is empty");
  }
  return {};
}

}  // namespace

Result<TypedDataset> read_csv_dataset(const CsvOptions& options, const std::filesystem::path& train,
                                      const std::filesystem::path& test) {
  const CellReader cells(options.missing);
  ASSIGN_OR_RETURN(const CsvScan train_scan, scan_csv(options, cells, train, "data"));
  if (Status s = check_options(options, train_scan.names); !s.ok()) return std::move(s).error();
  TypedDataset result;
  DatasetSchema& schema = result.schema;
  ASSIGN_OR_RETURN(schema, build_schema(options, train_scan));
  CsvScan test_scan;
  if (!test.empty()) {
    ASSIGN_OR_RETURN(test_scan, scan_csv(options, cells, test, "test", train_scan.names));
    if (!options.json_lines && !options.header &&
        test_scan.names.size() != train_scan.names.size()) {
      return dataset_error("test", std::to_string(test_scan.names.size()) + " columns, expected " +
                                       std::to_string(train_scan.names.size()) +
                                       " as in the training data");
    }
    schema.test_rows = test_scan.rows;
  }

  const auto role_of = [&](const RowFiller::Layout& layout, size_t i) {
    return layout.roles[i].kind;
  };
  if (schema.kind == DatasetSchema::Kind::kText) {
    if (Status s = learn_vocabulary(options, cells, train, train_scan.names, schema); !s.ok()) {
      return std::move(s).error();
    }
  }
  ASSIGN_OR_RETURN(RowFiller::Layout train_layout,
                   build_layout(schema, train_scan.names, "data", TargetUse::kNeeded));
  RowFiller::Layout test_layout;
  if (!test.empty()) {
    ASSIGN_OR_RETURN(test_layout,
                     build_layout(schema, test_scan.names, "test", TargetUse::kNeeded));
  }
  const auto only_bytes = [&](const RowFiller::Layout& layout, const CsvScan& scan) {
    bool bytes = true;
    for (size_t i = 0; i < layout.roles.size(); ++i) {
      if (role_of(layout, i) == RoleKind::kPixel) bytes = bytes && scan.counts[i].bytes;
    }
    return bytes;
  };
  const bool bytes = only_bytes(train_layout, train_scan) && only_bytes(test_layout, test_scan);
  schema.image_dtype = bytes ? DType::kU8 : DType::kF32;  // bytes take a quarter of the memory
  train_layout.pixel_dtype = test_layout.pixel_dtype = schema.image_dtype;

  Codebook codebook;
  codebook.learning = true;
  codebook.categories.resize(static_cast<size_t>(train_layout.categorical));
  for (size_t i = 0; i < train_scan.names.size(); ++i) {
    const ColumnCounts& c = train_scan.counts[i];
    if (role_of(train_layout, i) == RoleKind::kTargetClass) {
      codebook.whole_classes = c.texts == 0 && c.not_finite == 0 && c.whole;
    }
  }
  ASSIGN_OR_RETURN(
      const std::vector<int64_t> missing,
      fill(options, cells, train, "data", train_layout, train_scan.rows, codebook, result.train));
  size_t column = 0;
  for (size_t i = 0; i < missing.size(); ++i) {
    const RoleKind role = role_of(train_layout, i);
    const bool one =
        role == RoleKind::kNumeric || role == RoleKind::kCategorical || role == RoleKind::kText;
    const int64_t columns = one ? 1 : train_layout.roles[i].parts;
    for (int64_t part = 0; part < columns; ++part) {
      schema.columns[column++].missing_count = missing[i];
    }
  }
  sort_codes(schema, codebook, result.train);
  if (Status s = check_result(options, schema); !s.ok()) return std::move(s).error();
  codebook.learning = false;
  if (!test.empty()) {
    const auto counts =
        fill(options, cells, test, "test", test_layout, test_scan.rows, codebook, result.test);
    if (!counts.ok()) return counts.error();
  }
  if (schema.kind == DatasetSchema::Kind::kImage && schema.image_dtype == DType::kU8) {
    result.train.image_sums = sum_images(result.train.image_u8, result.train.rows, schema.image);
    result.test.image_sums = sum_images(result.test.image_u8, result.test.rows, schema.image);
  }
  return result;
}

}  // namespace trainyard
