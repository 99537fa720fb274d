#include "src/data/table/cell_warnings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "src/base/join.h"
#include "src/base/text.h"
#include "src/data/table/number_spelling.h"
#include "src/data/table/table_reader.h"

namespace trainyard {
namespace {

constexpr double kExactFloatMax = 16777216;  // 2^24
// The most numbers that are searched for lost digits, and the least number of rows.
constexpr int64_t kLostNumbersMax = int64_t{1} << 20;
constexpr int64_t kLostRowsMin = 64;
constexpr double kLostShareMin = 0.01;

/// The cells of a column of names: the categories of a feature, or the classes.
struct NamedColumn {
  const std::string& name;
  const std::vector<std::string>& names;
  bool is_target;
};

std::vector<NamedColumn> named_columns(const DatasetSchema& schema) {
  std::vector<NamedColumn> columns;
  for (const ColumnSchema& column : schema.columns) {
    if (column.kind == ColumnSchema::Kind::kCategorical) {
      columns.push_back({column.name, column.categories, false});
    }
  }
  columns.push_back({schema.target.name, schema.target.classes, true});
  return columns;
}

std::string quoted_names(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(quoted_value(name));
  return joined(quoted, " and ");
}

/// Returns two names of the same number, such as "01" and "1"; nothing if there are none.
std::optional<std::pair<std::string, std::string>> equal_numbers(
    const std::vector<std::string>& names) {
  if (form_of(names) != CategoryForm::kWholeNumbers) return std::nullopt;
  const CellReader cells;
  std::unordered_map<double, const std::string*> seen;
  for (const std::string& name : names) {
    const double value = cells.read(name).value;
    if (std::abs(value) >= kExactMax) continue;
    const auto [other, is_new] = seen.emplace(value, &name);
    if (!is_new) return std::pair(*other->second, name);
  }
  return std::nullopt;
}

void add_equal_numbers(const NamedColumn& column, std::vector<DataWarning>& warnings) {
  const auto pair = equal_numbers(column.names);
  if (!pair) return;
  const std::string kind = column.is_target ? "classes" : "categories";
  warnings.push_back({"UNCLEAR_NUMBERS",
                      column.is_target ? std::vector<std::string>() : std::vector{column.name}, 2,
                      "column " + quoted_value(column.name) + " has the " + kind + " " +
                          quoted_value(pair->first) + " and " + quoted_value(pair->second) +
                          ", which are the same number but may be different codes: they are kept "
                          "apart. If they mean the same, write them alike."});
}

void add_missing_names(const CsvOptions& options, const NamedColumn& column, int64_t cells,
                       std::vector<DataWarning>& warnings) {
  const std::vector<std::string> names = missing_names(column.names);
  if (names.empty()) return;
  const std::string kind = column.is_target ? "class" : "category";
  warnings.push_back(
      {"MISSING_AS_NAME", column.is_target ? std::vector<std::string>() : std::vector{column.name},
       cells,
       "column " + quoted_value(column.name) + " has the text " + quoted_names(names) +
           (cells > 0 ? " in " + std::to_string(cells) + (cells == 1 ? " row" : " rows")
                      : std::string()) +
           ", which is read as a " + kind +
           " of that name, as in NA for Namibia. If it means a "
           "missing value, list it in dataset." +
           options.field("missing") + "."});
}

/// Returns what to do so that numbers in this spelling are read.
std::vector<std::string> settings_for(const CsvOptions& options, const NumberSpelling& spelling) {
  const NumberStyle& style = spelling.style;
  const bool decimal = style.decimal != options.number_style().decimal;
  const bool thousands = style.thousands != options.thousands;
  std::vector<std::string> settings;
  if (options.json_lines && (decimal || thousands)) return {"write them as JSON numbers"};
  const auto set = [&](const char* name, const std::string& mark) {
    settings.push_back("set dataset." + options.field(name) + ": \"" + mark + "\"");
  };
  if (decimal) set("decimal", std::string(1, style.decimal));
  if (thousands) set("thousands", style.thousands);
  if (spelling.spelled) {
    settings.push_back("list the column in dataset." + options.field("numbers"));
  }
  return settings;
}

/// Warns about a column of categories that are all numbers in another style.
void add_spelled_numbers(const CsvOptions& options, const ColumnSchema& column,
                         std::vector<DataWarning>& warnings) {
  if (std::ranges::find(options.categorical, column.name) != options.categorical.end()) return;
  const std::vector<std::string_view> texts(column.categories.begin(), column.categories.end());
  const std::optional<NumberSpelling> spelling = find_spelling(texts, options.delimiter);
  if (!spelling) return;
  const std::vector<std::string> settings = settings_for(options, *spelling);
  if (settings.empty()) return;
  warnings.push_back({"NUMBERS_AS_CATEGORIES",
                      {column.name},
                      std::ssize(column.categories),
                      "column " + quoted_value(column.name) +
                          " is read as categories, but all its texts are numbers, such as " +
                          quoted_value(column.categories.front()) + ". To read them as numbers, " +
                          joined(settings, " and ") + "."});
}

void add_mixed_zones(const CsvScan& scan, std::vector<DataWarning>& warnings) {
  for (const auto& [name, counts] : scan.dates) {
    if (!counts.zones || !counts.no_zones) continue;
    warnings.push_back({"MIXED_ZONES",
                        {name},
                        1,
                        "column " + quoted_value(name) +
                            " has times with a zone, such as Z or +01:00, and times without one: "
                            "all become hours in UTC, and those without a zone are read as UTC. "
                            "If they are local times, give them their zone."});
  }
}

/// A column of whole numbers that are too far apart for 32 bits.
struct LongColumn {
  size_t index = 0;  // in the file
  double offset = 0;
  std::vector<std::pair<float, uint64_t>> values = {};  // as stored, and an identity of the number
};

std::vector<LongColumn> long_columns(const CsvScan& scan, const DatasetSchema& schema) {
  std::map<std::string_view, double> offsets;
  for (const ColumnSchema& c : schema.columns) {
    if (c.kind == ColumnSchema::Kind::kNumeric && c.date.empty()) offsets.emplace(c.name, c.offset);
  }
  if (schema.target.kind == TargetSchema::Kind::kNumeric) {
    offsets.emplace(schema.target.name, schema.target.offset);
  }
  std::vector<LongColumn> columns;
  for (size_t i = 0; i < scan.names.size(); ++i) {
    const ColumnCounts& c = scan.counts[i];
    const auto offset = offsets.find(scan.names[i]);
    if (offset == offsets.end() || c.numbers == 0 || !c.whole) continue;
    const double size =
        std::max(std::abs(c.range.low - offset->second), std::abs(c.range.high - offset->second));
    const bool rounded = std::max(std::abs(c.range.low), std::abs(c.range.high)) >= kExactMax;
    if (rounded || (!c.range.exact && size > kExactFloatMax))
      columns.push_back({i, offset->second});
  }
  return columns;
}

Status read_values(const CsvOptions& options, const CellReader& cells,
                   const std::filesystem::path& path, const CsvScan& scan,
                   std::vector<LongColumn>& columns) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, "data"));
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table,
                   open_table(options, *source, "data", scan.names));
  const auto target =
      static_cast<size_t>(std::ranges::find(scan.names, options.target) - scan.names.begin());
  const int64_t rows =
      std::min(scan.rows, std::max(kLostRowsMin, kLostNumbersMax / std::ssize(columns)));
  for (LongColumn& column : columns) column.values.reserve(static_cast<size_t>(rows));
  std::vector<std::string_view> fields;
  for (int64_t row = 0; row < rows;) {
    ASSIGN_OR_RETURN(const bool more, table->next(fields));
    if (!more) break;
    if (is_skipped(options, cells, fields, target)) continue;
    ++row;
    for (LongColumn& column : columns) {
      if (column.index >= fields.size()) continue;
      const std::string_view text = fields[column.index];
      const Cell cell = cells.read(text);
      if (!cell.is_number()) continue;  // missing, or a number with a unit
      column.values.emplace_back(
          static_cast<float>(cell.value - column.offset),
          cell.digits ? std::hash<std::string_view>{}(text) : std::bit_cast<uint64_t>(cell.value));
    }
  }
  return {};
}

/// Adds a warning if many different numbers of the column become equal.
void add_lost_digits(const CsvOptions& options, const CsvScan& scan, LongColumn& column,
                     std::vector<DataWarning>& warnings) {
  std::ranges::sort(column.values);
  column.values.erase(std::unique(column.values.begin(), column.values.end()), column.values.end());
  const auto numbers = std::ssize(column.values);
  int64_t stored = 0;
  for (size_t i = 0; i < column.values.size(); ++i) {
    stored += i == 0 || column.values[i].first != column.values[i - 1].first ? 1 : 0;
  }
  const int64_t lost = numbers - stored;
  if (static_cast<double>(lost) < kLostShareMin * static_cast<double>(numbers) || lost == 0) return;
  const std::string& name = scan.names[column.index];
  warnings.push_back(
      {"LOST_DIGITS", name == options.target ? std::vector<std::string>() : std::vector{name}, lost,
       "column " + quoted_value(name) +
           " has long whole numbers that numbers of 32 bits cannot "
           "tell apart: its " +
           std::to_string(numbers) + " different values become " + std::to_string(stored) +
           (name == options.target
                ? ". If they are codes, set dataset." + options.field("target_kind") + ": class."
                : ". If they are codes, list it in dataset." + options.field("categorical") +
                      "; else leave out the digits that all of them share.")});
}

}  // namespace

std::vector<std::string> missing_names(const std::vector<std::string>& names) {
  std::vector<std::string> found;
  if (form_of(names) != CategoryForm::kTexts) return found;
  const std::span<const std::string_view> missing = missing_numbers();
  for (const std::string& name : names) {
    // "None" is the name of many real categories.
    if (name != "None" && std::ranges::find(missing, name) != missing.end()) found.push_back(name);
  }
  return found;
}

Result<std::vector<DataWarning>> find_cell_warnings(const CsvOptions& options,
                                                    const CellReader& cells,
                                                    const std::filesystem::path& path,
                                                    const CsvScan& scan,
                                                    const DatasetSchema& schema) {
  std::vector<DataWarning> warnings;
  std::map<std::string_view, int64_t> marked;
  for (size_t i = 0; i < scan.names.size(); ++i) marked[scan.names[i]] = scan.counts[i].marked;
  for (const NamedColumn& column : named_columns(schema)) {
    add_equal_numbers(column, warnings);
    add_missing_names(options, column, marked[column.name], warnings);
  }
  for (const ColumnSchema& column : schema.columns) {
    if (column.kind == ColumnSchema::Kind::kCategorical) {
      add_spelled_numbers(options, column, warnings);
    }
  }
  add_mixed_zones(scan, warnings);
  std::vector<LongColumn> columns = long_columns(scan, schema);
  if (columns.empty()) return warnings;
  if (Status s = read_values(options, cells, path, scan, columns); !s.ok()) {
    return std::move(s).error();
  }
  for (LongColumn& column : columns) add_lost_digits(options, scan, column, warnings);
  return warnings;
}

}  // namespace trainyard
