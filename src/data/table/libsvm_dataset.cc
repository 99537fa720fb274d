// Reads rows in the sparse format of LIBSVM and SVMlight: "label index:value index:value". Indices
// begin at 1 and ascend, missing values are 0, and a comment begins with #. Source: Chang and Lin,
// "LIBSVM: A library for support vector machines" (2011), and the library's README.
#include <algorithm>
#include <charconv>
#include <set>

#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/table/category_codes.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/csv_schema.h"
#include "src/data/table/json_lines.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

constexpr int64_t kMemoryCheckEntries = int64_t{1} << 20;

/// The rows of a file in compressed sparse row form.
struct SparseRows {
  std::vector<Cell> labels;
  std::vector<size_t> ends;      // the end of each row in `columns` and `values`
  std::vector<int32_t> columns;  // numbered from 0
  std::vector<float> values;
  int64_t column_count = 0;
};

std::string place_at(const std::string& what, int64_t line) {
  return what + ": line " + std::to_string(line);
}

/// Removes the first word from the line and returns it; empty at the end of the line.
std::string_view take_word(std::string_view& line) {
  constexpr std::string_view kBlanks = " \t";
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

/// Adds the row of a line. The error describes the first problem of the line.
Status add_row(std::string_view line, const std::string& place, const CellReader& numbers,
               SparseRows& rows) {
  const std::string_view label = take_word(line);
  rows.labels.push_back(numbers.read(label));
  rows.labels.back().digits = false;  // a label beyond 2^53 is a number, never a class
  if (!rows.labels.back().is_number()) {
    return dataset_error(place, "the label " + quoted_value(label) + " is not a finite number");
  }
  int64_t before = 0;
  for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
    const size_t colon = word.find(':');
    int64_t index = 0;
    const auto [end, error] =
        std::from_chars(word.data(), word.data() + std::min(colon, word.size()), index);
    if (colon == std::string_view::npos || error != std::errc() || end != word.data() + colon) {
      return dataset_error(place, quoted_value(word) + ", expected index:value such as 3:0.5");
    }
    if (index <= before || index > kColumnsMax) {
      return dataset_error(
          place, "index " + std::to_string(index) + " after " + std::to_string(before) +
                     ", expected ascending indices from 1 to " + std::to_string(kColumnsMax));
    }
    const Cell value = numbers.read(word.substr(colon + 1));
    if (!value.is_number()) {
      return dataset_error(
          place, "the value in " + quoted_value(word) + " is not a finite number of 32 bits");
    }
    rows.columns.push_back(static_cast<int32_t>(index - 1));
    rows.values.push_back(static_cast<float>(value.value));
    before = index;
  }
  rows.column_count = std::max(rows.column_count, before);
  rows.ends.push_back(rows.columns.size());
  return {};
}

Result<SparseRows> read_rows(const std::filesystem::path& path, const std::string& what) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, what));
  LineReader lines(*source, what);
  const CellReader numbers;  // no text stands for a missing value
  SparseRows rows;
  Problems problems;
  int64_t checked = 0;
  while (!problems.full()) {
    std::string_view line;
    ASSIGN_OR_RETURN(const bool more, lines.next(line));
    if (!more) break;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (Status s = add_row(line, place_at(what, lines.line()), numbers, rows); !s.ok()) {
      problems.add(s.error());
    }
    const int64_t entries = std::ssize(rows.columns) + std::ssize(rows.labels);
    if (entries < checked + kMemoryCheckEntries) continue;
    checked = entries;
    const int64_t bytes = std::ssize(rows.columns) * 8 + std::ssize(rows.labels) * 24;
    if (Status s = check_memory(2 * bytes, what); !s.ok()) return std::move(s).error();
  }
  if (!problems.empty()) return problems.error();
  if (rows.labels.empty()) return dataset_error(what, "there are no rows");
  if (std::ssize(rows.labels) > kRowsMax) {
    return dataset_error(what, "more than " + std::to_string(kRowsMax) + " rows");
  }
  return rows;
}

TargetSchema::Kind target_kind(const SparseRows& rows) {
  ColumnCounts counts;
  std::set<std::string> values;
  for (const Cell& label : rows.labels) {
    count_cell(label, counts);
    note_target_value(label, label.is_whole() ? whole_number_text(label.value) : "", values);
  }
  return infer_target("", counts, values.size());
}

/// Converts the rows to dense ones.
Status fill_inputs(const SparseRows& sparse, int64_t columns, const std::string& what,
                   TypedRows& rows) {
  rows.rows = std::ssize(sparse.labels);
  if (sparse.column_count > columns) {
    return dataset_error(what, "index " + std::to_string(sparse.column_count) +
                                   ", expected at most " + std::to_string(columns) +
                                   " as in the training data");
  }
  if (Status s = check_memory(rows.rows * columns * 4, what); !s.ok()) return s;
  rows.numeric.assign(static_cast<size_t>(rows.rows * columns), 0.0F);
  size_t entry = 0;
  for (size_t row = 0; row < sparse.ends.size(); ++row) {
    float* const values = rows.numeric.data() + row * static_cast<size_t>(columns);
    for (; entry < sparse.ends[row]; ++entry) values[sparse.columns[entry]] = sparse.values[entry];
  }
  return {};
}

Status fill_targets(const SparseRows& sparse, const TargetSchema& target, const std::string& what,
                    TypedRows& rows) {
  if (target.kind == TargetSchema::Kind::kNumeric) {
    for (const Cell& label : sparse.labels) {
      rows.target_numeric.push_back(static_cast<float>(label.value));
    }
    return {};
  }
  const CategoryCodes codes(target.classes);
  Problems problems;
  for (size_t row = 0; row < sparse.labels.size() && !problems.full(); ++row) {
    const Cell& label = sparse.labels[row];
    const int32_t code = label.is_whole() ? codes.find(whole_number_text(label.value)) : -1;
    if (code < 0) {
      problems.add(what + ": row " + std::to_string(row + 1),
                   "its label is not one of the training rows");
    }
    rows.target_class.push_back(code);
  }
  return problems.empty() ? Status() : Status(problems.error());
}

/// Returns the classes, sorted. Refuses a single class.
Result<std::vector<std::string>> classes_of(const SparseRows& rows) {
  CategoryCodes codes;
  for (const Cell& label : rows.labels) {
    codes.add(whole_number_text(label.value));
    if (codes.count() > kClassesMax) {
      return dataset_error("data", "more than " + std::to_string(kClassesMax) +
                                       " different labels, expected at most that many classes");
    }
  }
  std::vector<int32_t> unused;
  std::vector<std::string> classes = codes.sorted(unused);
  if (classes.size() >= 2) return classes;
  return dataset_error(
      "data", "every label is " + classes.front() + ", expected at least 2 different ones");
}

}  // namespace

Result<TypedDataset> read_libsvm_dataset(const std::filesystem::path& train,
                                         const std::filesystem::path& test) {
  ASSIGN_OR_RETURN(const SparseRows rows, read_rows(train, "data"));
  if (rows.column_count == 0) return dataset_error("data", "no row has a value");
  TypedDataset data;
  DatasetSchema& schema = data.schema;
  schema.target.name = "label";
  schema.target.kind = target_kind(rows);
  if (schema.target.kind == TargetSchema::Kind::kClass) {
    ASSIGN_OR_RETURN(schema.target.classes, classes_of(rows));
  }
  // The columns get the names of a CSV without a header, so that predict accepts such CSV rows.
  schema.source_columns = numbered_names(static_cast<size_t>(rows.column_count));
  for (const std::string& name : schema.source_columns) {
    schema.columns.push_back({ColumnSchema::Kind::kNumeric, name, {}, 0});
  }
  schema.source_columns.push_back(schema.target.name);
  const auto fill = [&](const SparseRows& from, const std::string& what, TypedRows& to) {
    Status s = fill_inputs(from, rows.column_count, what, to);
    return s.ok() ? fill_targets(from, schema.target, what, to) : s;
  };
  if (Status s = fill(rows, "data", data.train); !s.ok()) return std::move(s).error();
  if (Status s = check_numbers_differ(data.train.target_numeric, "data"); !s.ok()) {
    return std::move(s).error();
  }
  schema.train_rows = data.train.rows;
  if (test.empty()) return data;
  ASSIGN_OR_RETURN(const SparseRows test_rows, read_rows(test, "test"));
  if (Status s = fill(test_rows, "test", data.test); !s.ok()) return std::move(s).error();
  schema.test_rows = data.test.rows;
  return data;
}

}  // namespace trainyard
