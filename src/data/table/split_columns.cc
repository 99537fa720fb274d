#include "src/data/table/split_columns.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/files/byte_source.h"
#include "src/data/limits.h"
#include "src/data/table/date.h"
#include "src/data/table/table_reader.h"

namespace trainyard {
namespace {

/// Returns the index of the column with this name; names.size() for an empty name.
size_t column_of(const std::vector<std::string>& names, const std::string& name) {
  if (name.empty()) return names.size();
  return static_cast<size_t>(std::ranges::find(names, name) - names.begin());
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
                             : cell.is_whole() ? whole_number_name(cell, text)
                                               : nfc(text);
    if (name.size() > kNameBytesMax) {
      return "a text of " + std::to_string(name.size()) +
             " bytes is too long for the name of a group (at most " +
             std::to_string(kNameBytesMax) + " bytes)";
    }
    const auto group = static_cast<int32_t>(rows_.size());
    const int32_t code = groups_.emplace(name, group).first->second;
    if (code == group) rows_.push_back(0);
    ++rows_[static_cast<size_t>(code)];
    codes_.push_back(code);
    if (!too_many()) return "";
    return "more than " + std::to_string(kGroupsMax) +
           " different values, which is too many groups";
  }
  /// Returns whether there are more than kGroupsMax groups, so that no further row needs to be
  /// read.
  bool too_many() const { return std::ssize(rows_) > kGroupsMax; }
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

/// Reads times as days or hours, or as the numbers that they are.
class TimeReader {
 public:
  explicit TimeReader(const CellReader& cells) : cells_(cells) {}

  /// Returns an empty text, or why the value is refused.
  std::string add(std::string_view text) {
    const Cell cell = cells_.read(text);
    if (cell.kind == Cell::Kind::kMissing) {
      return "the time is missing, but rows are ordered by it; fill it in, or remove the row";
    }
    if (!cell.is_number() && possible_orders(text) == 0) {
      return quoted_value(text) +
             " is no time, expected a number, or a date such as 2026-01-31 or 2026-01-31T12:30:05";
    }
    if (rows_ > 0 && dates_ == cell.is_number()) {
      return quoted_value(text) + (cell.is_number() ? " is a number" : " is a date") +
             ", but the times before are " + (dates_ ? "dates" : "numbers") +
             "; expected one kind in the whole column";
    }
    dates_ = !cell.is_number();
    if (!dates_) {
      numbers_.push_back(cell.value);
    } else if (!add_date(text)) {
      return quoted_value(text) + " has its year, month and day in another order than the dates " +
             "before; expected one order in the whole column";
    }
    ++rows_;
    return "";
  }
  /// Sets the rank of each row's time among the different times.
  Status finish(const CsvOptions& options, TypedDataset& data) {
    if (!dates_) return set_ranks(numbers_, data);
    std::optional<DateOrder> order = only_order(orders_);
    if (!order && !options.date_order.empty()) order = find_date_order(options.date_order);
    if (order && (orders_ & bit_of(*order)) != 0)
      return set_ranks(by_order_[static_cast<size_t>(*order)], data);
    return dataset_error(options.field("time"),
                         "the dates of column " + quoted_value(options.time) + ", such as " +
                             quoted_value(example_) +
                             ", may have the day or the month first; set dataset." +
                             options.field("date_order") + " to day_first or month_first");
  }

 private:
  /// Returns false if no order is left in which all texts are dates.
  bool add_date(std::string_view text) {
    const auto orders = static_cast<DateOrders>(orders_ & possible_orders(text));
    if (orders == 0) return false;
    orders_ = orders;
    if (rows_ == 0) example_ = text;
    for (const DateOrder order : kDateOrders) {
      std::vector<double>& values = by_order_[static_cast<size_t>(order)];
      if ((orders & bit_of(order)) == 0) {
        values.clear();
        continue;
      }
      const Date date = *parse_date(text, order);
      values.push_back(order == DateOrder::kTime ? date.hours() : date.days());
    }
    return true;
  }
  static Status set_ranks(const std::vector<double>& values, TypedDataset& data) {
    std::vector<double> sorted = values;
    std::ranges::sort(sorted);
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    for (const double value : values) {
      const auto rank = std::ranges::lower_bound(sorted, value) - sorted.begin();
      data.train.time.push_back(static_cast<int32_t>(rank));
    }
    return {};
  }

  const CellReader& cells_;
  int64_t rows_ = 0;
  bool dates_ = false;  // whether the times so far are dates; false while there are none
  std::vector<double> numbers_;
  DateOrders orders_ = kAllDateOrders;  // those in which all texts so far are dates
  // The times in each order that is still possible; complete, since orders only become fewer.
  std::array<std::vector<double>, kDateOrders.size()> by_order_;
  std::string example_;
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
  while (!problems.full() && !groups.too_many()) {
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
  return options.time.empty() ? Status() : times.finish(options, data);
}

}  // namespace trainyard
