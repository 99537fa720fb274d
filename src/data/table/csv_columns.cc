#include "src/data/table/csv_columns.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/limits.h"
#include "src/data/table/date.h"
#include "src/data/table/number_spelling.h"
#include "src/data/table/table_blocks.h"
#include "src/data/table/table_reader.h"

namespace trainyard {

void count_cell(const Cell& cell, ColumnCounts& counts) {
  switch (cell.kind) {
    case Cell::Kind::kMissing:
      ++counts.missing;
      break;
    case Cell::Kind::kNumber:
      ++counts.numbers;
      counts.range.add(cell.value);
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

void count_spelled(const CellReader& cells, std::string_view text, ColumnCounts& counts) {
  const SpelledNumber spelled = read_spelled(cells, text);
  count_cell(spelled.cell, counts);
  counts.booleans = 0;
  if (!spelled.unit.empty() && counts.units.size() < kUnitsMax) counts.units.insert(spelled.unit);
}

Cell count_text(const CellReader& cells, std::string_view text, ColumnCounts& counts) {
  const Cell cell = cells.read(text);
  count_cell(cell, counts);
  if (cell.kind == Cell::Kind::kMissing) {
    counts.marked += cells.is_missing_text(text) ? 0 : 1;
  } else if (counts.booleans != 0) {
    counts.booleans = static_cast<BooleanWords>(counts.booleans & boolean_words(text));
  }
  return cell;
}

CategoryForm ColumnCounts::form() const {
  if (texts == 0 && not_finite == 0 && numbers > 0 && whole) return CategoryForm::kWholeNumbers;
  return texts > 0 && booleans != 0 ? CategoryForm::kBooleans : CategoryForm::kTexts;
}

double NumberRange::offset(bool whole) const {
  // Numbers of 32 bits have steps of 2^-24 of their size. If the range is 4096 times smaller than
  // the numbers, fewer than 4096 steps of it are left. Whole numbers, such as times in seconds, are
  // exact in a range of up to 2^25 around the offset, and gain at least two bits in a longer one.
  constexpr double kWholeRangeMax = 33554432;
  constexpr double kFarAway = 4096, kWholeFarAway = 4;
  const double range = high - low;
  if (exact || !(range > 0)) return 0;
  const double size = std::max(std::abs(low), std::abs(high));
  const double middle = low + range / 2;
  if (whole && (range <= kWholeRangeMax || size >= kWholeFarAway * range)) {
    return std::floor(middle);
  }
  return size >= kFarAway * range ? middle : 0;
}

void DateCounts::add(std::string_view text) {
  DateOrders possible = 0;
  for (const DateOrder order : kDateOrders) {
    const std::optional<Date> date = parse_date(text, order);
    if (!date) continue;
    possible = static_cast<DateOrders>(possible | bit_of(order));
    days[static_cast<size_t>(order)].add(order == DateOrder::kTime ? date->hours() : date->days());
    times = times || date->has_time;
    if (!date->has_time || order == DateOrder::kTime) continue;
    zones = zones || date->has_zone;
    no_zones = no_zones || !date->has_zone;
  }
  if (possible != 0) orders = static_cast<DateOrders>(orders & possible);
}

void DateCounts::add(const DateCounts& other) {
  orders = static_cast<DateOrders>(orders & other.orders);
  for (size_t i = 0; i < days.size(); ++i) days[i].add(other.days[i]);
  times = times || other.times;
  zones = zones || other.zones;
  no_zones = no_zones || other.no_zones;
}

std::optional<DateForm> DateCounts::form(std::string_view wish) const {
  if (orders == 0 || orders == kAllDateOrders) return DateForm{DateOrder::kYearFirst, times};
  std::optional<DateOrder> order = only_order(orders);
  if (!order && !wish.empty()) order = find_date_order(wish);
  return order ? std::optional(DateForm{*order, times}) : std::nullopt;
}

double DateCounts::offset(DateOrder order) const {
  return days[static_cast<size_t>(order)].offset(/*whole=*/!times);
}

std::string target_value(const Cell& cell, std::string_view text) {
  return cell.is_whole() ? whole_number_name(cell, text)
                         : std::string(text.substr(0, kNameBytesMax));
}

void note_target_value(const Cell& cell, std::string_view text, std::set<std::string>& values) {
  if (values.size() > kTargetValuesMax) return;
  values.insert(target_value(cell, text));
}

std::vector<std::string> numbered_names(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("c" + std::to_string(i));
  return names;
}

namespace {

constexpr std::string_view kUnnamed = "Unnamed: ";

/// Makes names different by adding ".1", ".2" and so on to those that are taken. Names of the file
/// keep their text before generated ones do.
void number_repeated_names(std::span<const std::string_view> fields,
                           std::vector<std::string>& names) {
  std::unordered_set<std::string> seen;
  const std::unordered_set<std::string_view> written(fields.begin(), fields.end());
  for (const bool generated : {false, true}) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (fields[i].empty() != generated) continue;
      const std::string base = names[i];
      for (int n = 1; seen.contains(names[i]) || (n > 1 && written.contains(names[i])); ++n) {
        names[i] = base + "." + std::to_string(n);
      }
      seen.insert(names[i]);
    }
  }
}

}  // namespace

void fit_header(std::span<const std::string_view> first_row, std::vector<std::string>& header) {
  if (first_row.size() == header.size() + 1) {
    header.insert(first_row.back().empty() ? header.end() : header.begin(), std::string());
  } else if (first_row.size() + 1 == header.size() && header.back().empty()) {
    header.pop_back();
  }
}

bool is_generated_name(std::string_view name) {
  if (!name.starts_with(kUnnamed)) return false;
  name.remove_prefix(kUnnamed.size());
  return !name.empty() && name.find_first_not_of("0123456789.") == name.npos;
}

Result<std::vector<std::string>> header_names(std::span<const std::string_view> fields,
                                              const std::string& what) {
  std::vector<std::string> names;
  std::unordered_set<std::string_view> numbers;
  const CellReader cells;
  Problems problems;
  for (size_t i = 0; i < fields.size() && !problems.full(); ++i) {
    names.push_back(fields[i].empty() ? std::string(kUnnamed) + std::to_string(i) : nfc(fields[i]));
    const std::string place = what + ": header, column " + std::to_string(i + 1);
    if (names[i].size() > kNameBytesMax || !is_utf8(names[i])) {
      problems.add(place, quoted_value(names[i]) + " is not a name (UTF-8, at most " +
                              std::to_string(kNameBytesMax) + " bytes)");
    } else if (cells.read(fields[i]).is_number() && !numbers.insert(fields[i]).second) {
      problems.add(place, "the number " + quoted_value(names[i]) +
                              " appears twice, which names do not; if the file has no header, set "
                              "header: false");
    }
  }
  if (!problems.empty()) return problems.error();
  number_repeated_names(fields, names);
  return names;
}

std::string field_count(size_t count) {
  return std::to_string(count) + (count == 1 ? " field" : " fields");
}

bool is_skipped(const CsvOptions& options, const CellReader& cells,
                std::span<const std::string_view> fields, size_t target) {
  if (!options.skips_rows()) return false;
  // JSON lines may name the target for the first time in a later row.
  return target < fields.size() ? cells.is_missing_target(fields[target]) : options.json_lines;
}

namespace {

/// The indices of special columns in a scan.
struct ScannedColumns {
  size_t target = SIZE_MAX;
  std::vector<DateCounts*> dates;  // by column: its counts if it is in `date`, else null
  std::vector<bool> spelled;       // by column: listed in `numbers`
  // The lists of the options, in which each column is looked up.
  std::unordered_set<std::string_view> date_names, number_names;
};

/// Adds the columns that a new row of JSON lines brought. All rows before lack their value.
void add_columns(const CsvOptions& options, const std::vector<std::string>& names, CsvScan& scan,
                 ScannedColumns& columns) {
  if (scan.counts.empty()) {
    columns.date_names = {options.date.begin(), options.date.end()};
    columns.number_names = {options.numbers.begin(), options.numbers.end()};
  }
  for (size_t i = scan.counts.size(); i < names.size(); ++i) {
    scan.counts.emplace_back().missing = scan.rows;
    if (names[i] == options.target) columns.target = i;
    const bool is_date = columns.date_names.contains(names[i]);
    columns.dates.push_back(is_date ? &scan.dates[names[i]] : nullptr);
    columns.spelled.push_back(columns.number_names.contains(names[i]));
  }
}

Cell read_target(const CellReader& cells, std::string_view text, const ScannedColumns& columns) {
  return columns.spelled[columns.target] ? read_spelled(cells, text).cell : cells.read(text);
}

void count_row(const CellReader& cells, std::span<const std::string_view> fields,
               const ScannedColumns& columns, CsvScan& scan) {
  for (size_t i = 0; i < fields.size(); ++i) {
    ColumnCounts& counts = scan.counts[i];
    if (columns.spelled[i]) {
      count_spelled(cells, fields[i], counts);
      continue;
    }
    count_text(cells, fields[i], counts);
    if (columns.dates[i] != nullptr) columns.dates[i]->add(fields[i]);
  }
  if (columns.target >= fields.size()) return;
  const std::string_view target = fields[columns.target];
  if (cells.is_missing_target(target)) return;
  note_target_value(read_target(cells, target, columns), target, scan.target_values);
}

void note_skipped(const CellReader& cells, std::span<const std::string_view> fields, size_t target,
                  CsvScan& scan) {
  ++scan.skipped_rows;
  if (target >= fields.size() || cells.is_missing_text(fields[target])) return;
  ++scan.skipped_marks;
}

/// Scans the file on one thread, one row after another.
Result<CsvScan> scan_rows(const CsvOptions& options, const CellReader& cells,
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
  while (more) {
    const size_t width = table->names().size();
    if (scan.counts.size() < width) add_columns(options, table->names(), scan, columns);
    if (fields.size() != width) {
      problems.add(place_of(what, scan.rows + scan.skipped_rows + 1, table->line()),
                   field_count(fields.size()) + ", expected " + std::to_string(width) +
                       (options.header ? " as in the header" : " as in the first row"));
      ++scan.rows;  // the scan goes on, so that the error tells how many such rows there are
    } else if (is_skipped(options, cells, fields, columns.target)) {
      note_skipped(cells, fields, columns.target, scan);
    } else {
      if (problems.empty()) count_row(cells, fields, columns, scan);
      ++scan.rows;
    }
    if (scan.rows >= kRowsMax) {
      problems.add(what, "more than " + std::to_string(kRowsMax) + " rows");
      break;
    }
    Result<bool> next = table->next(fields);
    if (!next.ok()) {
      if (next.error().violations.empty()) return std::move(next).error();  // an I/O error
      problems.add(next.error());
      break;
    }
    more = *next;
  }
  if (!problems.empty()) return problems.error();
  if (scan.rows == 0) {
    return dataset_error(what, "none of the " + std::to_string(scan.skipped_rows) +
                                   " rows has a target; is " + options.field("target") + " (" +
                                   quoted_value(options.target) + ") the column that was meant?");
  }
  scan.names = table->names();
  return scan;
}

/// The result of one thread, which scans some of the blocks.
struct ScannedPart {
  std::vector<std::string> names;
  std::vector<int64_t> first_block;  // by column: the thread's first block with this name
  ScannedColumns columns;
  CsvScan scan;
  // Target values, each with the thread's first block that has it.
  std::vector<std::pair<int64_t, std::string>> targets;
  std::vector<std::pair<int64_t, int64_t>> rows;  // (block, number of its rows)
};

void add_counts(const ColumnCounts& from, ColumnCounts& to) {
  to.marked += from.marked;
  to.numbers += from.numbers;
  to.not_finite += from.not_finite;
  to.texts += from.texts;
  to.whole = to.whole && from.whole;
  to.bytes = to.bytes && from.bytes;
  to.range.add(from.range);
  to.booleans = static_cast<BooleanWords>(to.booleans & from.booleans);
  to.units.insert(from.units.begin(), from.units.end());
}

/// Scans the rows of a block. Returns false if one of them must be refused.
bool scan_block(const CsvOptions& options, const CellReader& cells, BlockRows& rows,
                RecordBlock& block, ScannedPart& part) {
  int64_t count = 0;
  const bool processed = rows.read(block, [&](const std::vector<std::string_view>& fields) {
    const std::vector<std::string>& names = rows.names();
    if (part.scan.counts.size() < names.size()) {
      add_columns(options, names, part.scan, part.columns);
      part.first_block.resize(names.size(), block.index);
    }
    if (fields.size() != names.size()) return false;
    if (is_skipped(options, cells, fields, part.columns.target)) {
      note_skipped(cells, fields, part.columns.target, part.scan);
      return true;
    }
    ++count;
    count_row(cells, fields, part.columns, part.scan);
    if (part.scan.target_values.size() > part.targets.size()) {
      const std::string_view target = fields[part.columns.target];
      const Cell cell = read_target(cells, target, part.columns);
      part.targets.emplace_back(block.index, target_value(cell, target));
    }
    return true;
  });
  part.rows.emplace_back(block.index, count);
  return processed;
}

/// Returns the columns of all parts, in the order of their first occurrence in the file.
std::vector<std::string> merge_names(const std::deque<ScannedPart>& parts) {
  struct Seen {
    int64_t block;
    size_t place;  // index in its part, which orders the names of a block
    const std::string* name;
  };
  std::unordered_map<std::string_view, Seen> all;
  for (const ScannedPart& part : parts) {
    for (size_t i = 0; i < part.names.size(); ++i) {
      const Seen seen{part.first_block[i], i, &part.names[i]};
      Seen& first = all.emplace(part.names[i], seen).first->second;
      if (seen.block < first.block) first = seen;
    }
  }
  std::vector<Seen> sorted;
  for (const auto& [name, seen] : all) sorted.push_back(seen);
  std::ranges::sort(sorted, {}, [](const Seen& s) { return std::pair(s.block, s.place); });
  std::vector<std::string> names;
  for (const Seen& seen : sorted) names.push_back(*seen.name);
  return names;
}

/// Merges the parts to the result that scan_rows() would give; nullopt if that would refuse the
/// file.
std::optional<CsvScan> merge_parts(std::deque<ScannedPart>& parts) {
  CsvScan scan;
  scan.names = merge_names(parts);
  if (std::ssize(scan.names) > kColumnsMax) return std::nullopt;
  std::unordered_map<std::string_view, size_t> columns;
  for (size_t i = 0; i < scan.names.size(); ++i) columns.emplace(scan.names[i], i);
  scan.counts.resize(scan.names.size());
  std::vector<std::pair<int64_t, int64_t>> rows;
  std::vector<std::pair<int64_t, std::string>> targets;
  for (const ScannedPart& part : parts) {
    for (size_t i = 0; i < part.scan.counts.size(); ++i) {
      add_counts(part.scan.counts[i], scan.counts[columns.at(part.names[i])]);
    }
    for (const auto& [name, counts] : part.scan.dates) scan.dates[name].add(counts);
    scan.skipped_rows += part.scan.skipped_rows;
    scan.skipped_marks += part.scan.skipped_marks;
    rows.insert(rows.end(), part.rows.begin(), part.rows.end());
    targets.insert(targets.end(), part.targets.begin(), part.targets.end());
  }
  std::ranges::sort(rows);
  for (const auto& [block, count] : rows) {
    scan.block_rows.push_back(scan.rows);
    scan.rows += count;
  }
  std::ranges::stable_sort(targets, {}, &std::pair<int64_t, std::string>::first);
  for (const auto& [block, value] : targets) {
    if (scan.target_values.size() <= kTargetValuesMax) scan.target_values.insert(value);
  }
  for (ColumnCounts& c : scan.counts) c.missing = scan.rows - c.numbers - c.not_finite - c.texts;
  if (scan.rows == 0 || scan.rows >= kRowsMax) return std::nullopt;
  return scan;
}

/// Scans the file with several threads. Returns nullopt if anything must be refused.
std::optional<CsvScan> scan_blocks(const CsvOptions& options, const CellReader& cells,
                                   const std::filesystem::path& path, const TableThreads& threads,
                                   const std::vector<std::string>& known) {
  const Result<std::unique_ptr<ByteSource>> source = open_file_source(path, "data");
  if (!source.ok()) return std::nullopt;
  const auto table = open_table(options, **source, "data", known);  // reads the header
  if (!table.ok()) return std::nullopt;
  if (!(*table)->has_blocks()) return std::nullopt;
  const int64_t rows_begin = (*table)->rows_begin();
  const std::vector<std::string>& names = (*table)->names();
  std::deque<ScannedPart> parts;  // one per thread; a deque, so that references stay valid
  std::deque<BlockRows> rows;
  const bool processed = read_blocks(options, path, threads, rows_begin, [&]() -> BlockWork {
    ScannedPart& part = parts.emplace_back();
    BlockRows& of_thread = rows.emplace_back(options, names);
    add_columns(options, names, part.scan, part.columns);
    part.first_block.resize(names.size(), -1);
    return [&](RecordBlock& block) { return scan_block(options, cells, of_thread, block, part); };
  });
  if (!processed) return std::nullopt;
  for (size_t i = 0; i < parts.size(); ++i) parts[i].names = rows[i].names();
  std::optional<CsvScan> scan = merge_parts(parts);
  if (scan) scan->rows_begin = rows_begin;
  return scan;
}

}  // namespace

Result<CsvScan> scan_csv(const CsvOptions& options, const CellReader& cells,
                         const std::filesystem::path& path, const std::string& what,
                         const TableThreads& threads, const std::vector<std::string>& known) {
  if (threads.block_bytes > 0) {
    if (std::optional<CsvScan> scan = scan_blocks(options, cells, path, threads, known)) {
      return *std::move(scan);
    }
  }
  return scan_rows(options, cells, path, what, known);
}

}  // namespace trainyard
