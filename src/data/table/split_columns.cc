#include "src/data/table/split_columns.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/text.h"
#include "src/data/files/byte_source.h"
#include "src/data/limits.h"
#include "src/data/table/date.h"
#include "src/data/table/table_reader.h"

namespace trainyard {
namespace {

/// Returns names.size() for an empty name.
size_t column_of(const std::vector<std::string>& names, const std::string& name) {
  if (name.empty()) return names.size();
  return static_cast<size_t>(std::ranges::find(names, name) - names.begin());
}

/// Returns the seconds since 1970-01-01.
double seconds_of(const Date& date) {
  constexpr double kSecondsOfDay = 86400;
  return static_cast<double>(date.day) * kSecondsOfDay + date.seconds;
}

/// Numbers the groups in the order of their first rows.
class GroupReader {
 public:
  explicit GroupReader(const CellReader& cells) : cells_(cells) {}

  /// Returns an empty text, or why the value is refused.
  std::string add(std::string_view text) {
    const Cell cell = cells_.read(text);
    const bool missing = cell.kind == Cell::Kind::kMissing;
    // A missing value and an empty text are the same group.
    const std::string name = missing           ? ""
                             : cell.is_whole() ? whole_number_text(cell.value)
                                               : std::string(text);
    const auto group = static_cast<int32_t>(rows_.size());
    const int32_t code = groups_.emplace(name, group).first->second;
    if (code == group) rows_.push_back(0);
    ++rows_[static_cast<size_t>(code)];
    codes_.push_back(code);
    const bool first_too_many = code == group && std::ssize(rows_) == kGroupsMax + 1;
    if (!first_too_many) return "";
    return "more than " + std::to_string(kGroupsMax) +
           " different values, which is too many groups";
  }
  void finish(TypedDataset& data) {
    data.train.group = std::move(codes_);
    data.schema.split.group_rows = std::move(rows_);
  }

 private:
  const CellReader& cells_;
  std::unordered_map<std::string, int32_t> groups_;
  std::vector<int32_t> codes_;
  std::vector<int64_t> rows_;
};

/// Reads times as seconds, or as the numbers that they are.
class TimeReader {
 public:
  explicit TimeReader(const CellReader& cells) : cells_(cells) {}

  /// Returns an empty text, or why the value is refused.
  std::string add(std::string_view text) {
    const Cell cell = cells_.read(text);
    if (cell.kind == Cell::Kind::kMissing) {
      return "the time is missing, but rows are ordered by it; fill it in, or remove the row";
    }
    const std::optional<Date> date = cell.is_number() ? std::nullopt : parse_date(text);
    if (!cell.is_number() && !date) {
      return quoted_value(text) +
             " is no time, expected a number, or a date such as 2026-01-31 or 2026-01-31T12:30:05";
    }
    if (!values_.empty() && dates_ != date.has_value()) {
      return quoted_value(text) + (date ? " is a date" : " is a number") +
             ", but the times before are " + (date ? "numbers" : "dates") +
             "; expected one kind in the whole column";
    }
    dates_ = date.has_value();
    values_.push_back(date ? seconds_of(*date) : cell.value);
    return "";
  }
  /// Sets the rank of each row's time among the different times.
  void finish(TypedDataset& data) {
    std::vector<double> sorted = values_;
    std::ranges::sort(sorted);
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (const double value : values_) {
      const auto rank = std::ranges::lower_bound(sorted, value) - sorted.begin();
      data.train.time.push_back(static_cast<int32_t>(rank));
    }
  }

 private:
  const CellReader& cells_;
  bool dates_ = false;  // whether the times so far are dates; false while there are none
  std::vector<double> values_;
};

}  // namespace

Status read_split_columns(const CsvOptions& options, const CellReader& cells, const TableFile& file,
                          TypedDataset& data) {
  if (options.group.empty() && options.time.empty()) return {};
  const std::vector<std::string>& names = file.scan.names;
  const size_t target = column_of(names, options.target);
  const size_t group = column_of(names, options.group), time = column_of(names, options.time);
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                   open_file_source(file.path, file.role));
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table,
                   open_table(options, *source, file.role, names));
  GroupReader groups(cells);
  TimeReader times(cells);
  Problems problems;
  std::vector<std::string_view> fields;
  int64_t rows = 0, skipped = 0;
  const auto add = [&](auto& reader, size_t column) {
    if (column == names.size()) return;
    std::string refused = reader.add(fields[column]);
    if (refused.empty()) return;
    problems.add(place_of(file.role, rows + skipped, table->line(), names[column]),
                 std::move(refused));
  };
  const auto changed = [&] {
    return dataset_error(file.role, "the file changed while it was read");
  };
  while (!problems.full()) {
    ASSIGN_OR_RETURN(const bool more, table->next(fields));
    if (!more) break;
    if (fields.size() != names.size()) return changed();
    if (is_skipped(options, cells, fields, target)) {
      ++skipped;
      continue;
    }
    ++rows;
    add(groups, group);
    add(times, time);
  }
  if (!problems.empty()) return problems.error();
  if (rows != data.train.rows) return changed();
  data.schema.split = {options.group, {}, options.time};
  if (!options.group.empty()) groups.finish(data);
  if (!options.time.empty()) times.finish(data);
  return {};
}

}  // namespace trainyard
