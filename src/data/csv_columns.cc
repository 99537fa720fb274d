#include "src/data/csv_columns.h"

#include <unordered_set>

#include "src/base/text.h"
#include "src/data/csv_reader.h"
#include "src/data/limits.h"

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
      problems.add(place, quoted_value(names[i]) + " is no name (UTF-8, at most " +
                              std::to_string(kNameBytesMax) + " bytes)");
    } else if (!seen.insert(names[i]).second) {
      problems.add(place, "the name " + quoted_value(names[i]) +
                              " appears twice; if the file has no header, set header: false");
    }
  }
  if (!problems.empty()) return problems.error();
  return names;
}

Result<CsvScan> scan_csv(const CsvOptions& options, const CellReader& cells,
                         const std::filesystem::path& path, const std::string& what) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, what));
  CsvReader reader(*source, options.delimiter, what);
  std::vector<std::string_view> fields;
  CsvScan scan;
  ASSIGN_OR_RETURN(bool more, reader.next(fields));
  if (!more) return dataset_error(what, "the file is empty");
  if (options.header) {
    ASSIGN_OR_RETURN(scan.names, header_names(fields, what));
    ASSIGN_OR_RETURN(more, reader.next(fields));
    if (!more) return dataset_error(what, "the file has a header, but no rows");
  } else {
    scan.names = numbered_names(fields.size());
  }
  const size_t columns = scan.names.size();
  scan.counts.resize(columns);
  size_t target = columns;
  for (size_t i = 0; i < columns; ++i) {
    if (scan.names[i] == options.target) target = i;
  }

  Problems problems;
  for (; more && !problems.full();) {
    ++scan.rows;
    if (fields.size() != columns) {
      problems.add(place_of(what, scan.rows, reader.line()),
                   std::to_string(fields.size()) + " fields, expected " + std::to_string(columns) +
                       (options.header ? " as in the header" : " as in the first row"));
    } else if (problems.empty()) {
      for (size_t i = 0; i < columns; ++i) count_cell(cells.read(fields[i]), scan.counts[i]);
      if (target < columns) {
        note_target_value(cells.read(fields[target]), fields[target], scan.target_values);
      }
    }
    if (scan.rows >= kRowsMax) {
      problems.add(what, "more than " + std::to_string(kRowsMax) + " rows");
      break;
    }
    Result<bool> next = reader.next(fields);
    if (!next.ok()) {
      if (next.error().violations.empty()) return std::move(next).error();  // I/O, not content
      problems.add(next.error());
      break;
    }
    more = *next;
  }
  if (!problems.empty()) return problems.error();
  return scan;
}

}  // namespace trainyard
