#include "src/data/table/csv_columns.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "src/base/text.h"
#include "src/data/limits.h"
#include "src/data/table/date.h"
#include "src/data/table/table_reader.h"

namespace trainyard {

void count_cell(const Cell& cell, ColumnCounts& counts) {
  switch (cell.kind) {
    case Cell::Kind::kMissing:
      ++counts.missing;
      break;
    case Cell::Kind::kNumber:
      ++counts.numbers;
      counts.whole = counts.whole && cell.is_whole();
      counts.bytes = counts.bytes && cell.is_byte();
      break;
    case Cell::Kind::kNotFinite:
      ++counts.not_finite;
      break;
    case Cell::Kind::kText:
      ++counts.texts;
      break;
  }
}

void note_target_value(const Cell& cell, std::string_view text, std::set<std::string>& values) {
  if (values.size() > kTargetValuesMax || cell.kind == Cell::Kind::kMissing) return;
  values.insert(cell.is_whole() ? whole_number_text(cell.value)
                                : std::string(text.substr(0, kNameBytesMax)));
}

std::vector<std::string> numbered_names(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("c" + std::to_string(i));
  return names;
}

Result<std::vector<std::string>> header_names(std::span<const std::string_view> fields,
                                              const std::string& what) {
  std::vector<std::string> names = numbered_names(fields.size());
  std::unordered_set<std::string_view> seen;
  Problems problems;
  for (size_t i = 0; i < fields.size() && !problems.full(); ++i) {
    const std::string place = what + ": header, column " + std::to_string(i + 1);
    if (!fields[i].empty()) names[i] = fields[i];
    if (names[i].size() > kNameBytesMax || !is_utf8(names[i])) {
      problems.add(place, quoted_value(names[i]) + " is not a name (UTF-8, at most " +
                              std::to_string(kNameBytesMax) + " bytes)");
    } else if (!seen.insert(names[i]).second) {
      problems.add(place, "the name " + quoted_value(names[i]) +
                              " appears twice; if the file has no header, set header: false");
    }
  }
  if (!problems.empty()) return problems.error();
  return names;
}

namespace {

/// What a scan knows of the columns beside what it counts.
struct ScannedColumns {
  size_t target = SIZE_MAX;
  std::vector<bool> dates;
};

/// The columns that the last row brought, of which all rows before lack the value.
void add_columns(const CsvOptions& options, const std::vector<std::string>& names, CsvScan& scan,
                 ScannedColumns& columns) {
  for (size_t i = scan.counts.size(); i < names.size(); ++i) {
    scan.counts.emplace_back().missing = scan.rows - 1;
    if (names[i] == options.target) columns.target = i;
    columns.dates.push_back(std::ranges::find(options.date, names[i]) != options.date.end());
  }
}

void count_row(const CellReader& cells, std::span<const std::string_view> fields,
               const ScannedColumns& columns, CsvScan& scan) {
  for (size_t i = 0; i < fields.size(); ++i) {
    count_cell(cells.read(fields[i]), scan.counts[i]);
    if (!columns.dates[i] || scan.counts[i].times) continue;
    const std::optional<Date> date = parse_date(fields[i]);
    scan.counts[i].times = date && date->has_time;
  }
  if (columns.target >= fields.size()) return;
  const std::string_view target = fields[columns.target];
  note_target_value(cells.read(target), target, scan.target_values);
}

}  // namespace

Result<CsvScan> scan_csv(const CsvOptions& options, const CellReader& cells,
                         const std::filesystem::path& path, const std::string& what,
                         const std::vector<std::string>& known) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, what));
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table,
                   open_table(options, *source, what, known));
  std::vector<std::string_view> fields;
  CsvScan scan;
  ScannedColumns columns;
  ASSIGN_OR_RETURN(bool more, table->next(fields));
  if (!more) {
    return dataset_error(
        what, options.json_lines ? "the file has no rows" : "the file has a header, but no rows");
  }
  Problems problems;
  for (; more && !problems.full();) {
    ++scan.rows;
    const size_t width = table->names().size();
    if (scan.counts.size() < width) add_columns(options, table->names(), scan, columns);
    if (fields.size() != width) {
      problems.add(place_of(what, scan.rows, table->line()),
                   std::to_string(fields.size()) + " fields, expected " + std::to_string(width) +
                       (options.header ? " as in the header" : " as in the first row"));
    } else if (problems.empty()) {
      count_row(cells, fields, columns, scan);
    }
    if (scan.rows >= kRowsMax) {
      problems.add(what, "more than " + std::to_string(kRowsMax) + " rows");
      break;
    }
    Result<bool> next = table->next(fields);
    if (!next.ok()) {
      if (next.error().violations.empty()) return std::move(next).error();  // I/O, not content
      problems.add(next.error());
      break;
    }
    more = *next;
  }
  if (!problems.empty()) return problems.error();
  scan.names = table->names();
  return scan;
}

}  // namespace trainyard
