#include "src/data/target_leak.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "src/base/text.h"
#include "src/data/rank_correlation.h"
#include "src/data/statistics.h"
#include "src/data/table/column_facts.h"
#include "src/data/table/column_names.h"

namespace trainyard {
namespace {

constexpr int64_t kValuesMax = 1000;     // most different values of a column that is checked
constexpr int64_t kRowsPerValueMin = 5;  // on average; with fewer rows, nothing can be concluded
constexpr int64_t kStraysPerMille = 1;   // of all rows, the most that may contradict
// of the rows outside the largest class, the most that may contradict
constexpr int64_t kStraysPercent = 5;
// With at least this many rows, disjoint ranges reveal the target whatever lies between them. With
// fewer rows, and at least kFewRowsOfRanges, a good measurement may separate the classes by chance
// or by nature; then only ranges that nearly touch count, as a threshold makes them.
constexpr int64_t kRowsOfRangesMin = 200;
constexpr int64_t kFewRowsOfRanges = 60;
constexpr int64_t kClassRowsOfRanges = 10;
constexpr double kGapMax = 0.05;  // of the whole range
constexpr size_t kClassesOfRangesMax = 64;
constexpr double kCorrelationMin = 0.999;
constexpr double kRankCorrelationMin = 0.9999;
// The ranks of a sample rule out most columns; those of the others are compared in more rows.
constexpr double kSampleCorrelationMin = 0.99;
constexpr int64_t kSampleRows = 1000, kRankedRowsMax = 100'000;
constexpr size_t kBlockRows = 1024;

/// The class of the first row with each value of a column, and the count of contradicting rows.
class ValueClasses {
 public:
  explicit ValueClasses(int64_t values) : classes_(static_cast<size_t>(values), -1) {}
  void add(size_t value, int32_t label) {
    int32_t& known = classes_[value];
    if (known < 0) {
      known = label;
      ++used_;
    } else if (known != label) {
      ++strays_;
    }
  }
  int64_t strays() const { return strays_; }
  int64_t used() const { return used_; }

 private:
  std::vector<int32_t> classes_;
  int64_t strays_ = 0, used_ = 0;
};

/// A column with few different values, which value() numbers from 0; missing is one of them.
struct ValueColumn {
  std::string name;
  const float* numbers = nullptr;  // the column's first value; null if it has `codes`
  const int32_t* codes = nullptr;
  size_t stride = 0;
  float first = 0;  // the least of `numbers`
  ValueClasses classes;

  size_t value(size_t row) const {
    if (codes != nullptr) return static_cast<size_t>(codes[row * stride] + 1);
    const float x = numbers[row * stride];
    return std::isnan(x) ? 0 : static_cast<size_t>(x - first) + 1;
  }
};

/// A column of numbers, with the range of its numbers for each class.
struct RangeColumn {
  struct Range {
    float low = std::numeric_limits<float>::infinity();
    float high = -std::numeric_limits<float>::infinity();
  };
  std::string name;
  const float* numbers = nullptr;
  size_t stride = 0;
  std::vector<Range> ranges = {};  // one per class

  /// Returns the widest gap between neighbouring ranges, as a share of the whole range; nullopt if
  /// two ranges overlap.
  std::optional<double> widest_gap() const {
    std::vector<Range> sorted = ranges;
    std::ranges::sort(sorted, {}, &Range::low);
    double widest = 0;
    for (size_t k = 1; k < sorted.size(); ++k) {
      if (sorted[k].low <= sorted[k - 1].high) return std::nullopt;
      widest = std::max(widest, static_cast<double>(sorted[k].low) - sorted[k - 1].high);
    }
    return widest / (static_cast<double>(sorted.back().high) - sorted.front().low);
  }
};

/// Returns the range of a column's stored numbers if they are whole and close together. The
/// column's statistics are not precise enough for that: its offset has been added to them, which
/// rounds.
std::optional<RangeColumn::Range> small_whole_range(const float* numbers, size_t stride,
                                                    int64_t rows) {
  RangeColumn::Range range;
  for (int64_t row = 0; row < rows; ++row) {
    const float x = numbers[static_cast<size_t>(row) * stride];
    if (std::isnan(x)) continue;
    range.low = std::min(range.low, x);
    range.high = std::max(range.high, x);
    if (x != std::floor(x) || range.high - range.low >= static_cast<float>(kValuesMax)) {
      return std::nullopt;
    }
  }
  return range.low <= range.high ? std::optional(range) : std::nullopt;
}

class ClassLeaks {
 public:
  ClassLeaks(const DatasetSchema& schema, const DatasetStatistics& s, const Partition& train)
      : target_(schema.target), train_(train) {
    const int64_t largest = *std::ranges::max_element(s.classes);
    strays_max_ = std::min(train.rows * kStraysPerMille / 1000,
                           (train.rows - largest) * kStraysPercent / 100);
    const bool many = train.rows >= kRowsOfRangesMin;
    const bool by_ranges =
        train.rows >= kFewRowsOfRanges && s.classes.size() <= kClassesOfRangesMax &&
        *std::ranges::min_element(s.classes) >= (many ? kRowsToJudge : kClassRowsOfRanges);
    const auto numeric = static_cast<size_t>(schema.numeric_columns());
    const auto categorical = static_cast<size_t>(schema.categorical_columns());
    size_t number = 0, category = 0;
    for (const ColumnSchema& column : schema.columns) {
      if (column.kind == ColumnSchema::Kind::kCategorical) {
        const int64_t values = std::ssize(column.categories) + 1;
        const int32_t* first = train.category.data() + category++;
        if (values > kValuesMax) continue;
        values_.push_back({column.name, nullptr, first, categorical, 0, ValueClasses(values)});
        continue;
      }
      const float* first = train.numeric.data() + number;
      if (!s.numeric[number++] || !column.date.empty()) continue;
      if (const auto range = small_whole_range(first, numeric, train.rows)) {
        const auto values = static_cast<int64_t>(range->high - range->low) + 2;
        values_.push_back({column.name, first, nullptr, numeric, range->low, ValueClasses(values)});
      } else if (by_ranges && column.missing_count == 0) {
        ranges_.push_back({column.name, first, numeric});
        ranges_.back().ranges.resize(s.classes.size());
      }
    }
  }

  std::vector<TargetLeak> find() {
    const auto rows = static_cast<size_t>(train_.rows);
    for (size_t first = 0; first < rows && !(values_.empty() && ranges_.empty());
         first += kBlockRows) {
      const size_t end = std::min(rows, first + kBlockRows);
      std::erase_if(values_, [&](ValueColumn& column) {
        for (size_t row = first; row < end; ++row) {
          column.classes.add(column.value(row), train_.target_class[row]);
        }
        return column.classes.strays() > strays_max_;
      });
      std::erase_if(ranges_, [&](RangeColumn& column) {
        for (size_t row = first; row < end; ++row) {
          RangeColumn::Range& range = column.ranges[static_cast<size_t>(train_.target_class[row])];
          const float x = column.numbers[row * column.stride];
          range.low = std::min(range.low, x);
          range.high = std::max(range.high, x);
        }
        return !column.widest_gap();
      });
    }
    std::vector<TargetLeak> leaks;
    for (const ValueColumn& column : values_) {
      const int64_t used = column.classes.used();
      if (used < 2 || used * kRowsPerValueMin > train_.rows) continue;
      const int64_t agree = train_.rows - column.classes.strays();
      leaks.push_back({column.name, agree,
                       "determines the target by itself: each of its " + std::to_string(used) +
                           " values occurs with one class of " + quoted_value(target_.name) +
                           ", in " + std::to_string(agree) + " of " + std::to_string(train_.rows) +
                           " rows"});
    }
    for (const RangeColumn& column : ranges_) {
      const double gap = *column.widest_gap();
      if (gap > kGapMax && train_.rows < kRowsOfRangesMin) continue;
      leaks.push_back({column.name, train_.rows,
                       "determines the target by itself: the numbers of each class of " +
                           quoted_value(target_.name) +
                           " do not overlap with those of other classes, in all " +
                           std::to_string(train_.rows) + " rows"});
    }
    return leaks;
  }

 private:
  const TargetSchema& target_;
  const Partition& train_;
  int64_t strays_max_ = 0;
  std::vector<ValueColumn> values_;
  std::vector<RangeColumn> ranges_;
};

/// Returns the correlation of each numeric column with the target, over the rows that have a value.
std::vector<double> correlations(const DatasetSchema& schema, const DatasetStatistics& s,
                                 const Partition& train) {
  const size_t columns = s.numeric.size();
  std::vector<double> mean(columns), xx(columns), yy(columns), xy(columns), x_sum(columns),
      y_sum(columns), count(columns);
  const std::vector<double> offsets = schema.numeric_offsets();
  for (size_t c = 0; c < columns; ++c) {
    mean[c] = s.numeric[c] ? minus_offset(*s.numeric[c], offsets[c]).mean : 0;
  }
  const double target_mean = minus_offset(*s.target, schema.target.offset).mean;
  const float* x = train.numeric.data();
  for (const float target : train.target_numeric) {
    const double y = static_cast<double>(target) - target_mean;
    for (size_t c = 0; c < columns; ++c, ++x) {
      const bool there = !std::isnan(*x);
      const double dx = there ? static_cast<double>(*x) - mean[c] : 0.0;
      const double dy = there ? y : 0.0;
      count[c] += there ? 1.0 : 0.0;
      x_sum[c] += dx;
      y_sum[c] += dy;
      xx[c] += dx * dx;
      yy[c] += dy * dy;
      xy[c] += dx * dy;
    }
  }
  std::vector<double> r(columns);
  for (size_t c = 0; c < columns; ++c) {
    if (count[c] < static_cast<double>(kRowsToJudge)) continue;
    const double n = count[c];
    const double spread = (xx[c] - x_sum[c] * x_sum[c] / n) * (yy[c] - y_sum[c] * y_sum[c] / n);
    if (spread > 0) r[c] = (xy[c] - x_sum[c] * y_sum[c] / n) / std::sqrt(spread);
  }
  return r;
}

/// Returns the rank correlation of numeric column `c` with the target in at most `rows_max` rows
/// that have a value, evenly spread; 0 if there are too few.
double rank_correlation_of(size_t c, size_t columns, const Partition& train, int64_t rows_max) {
  const auto step = static_cast<size_t>(std::max<int64_t>(1, train.rows / rows_max));
  std::vector<std::pair<float, float>> pairs;
  for (size_t row = 0; row < static_cast<size_t>(train.rows); row += step) {
    const float x = train.numeric[row * columns + c];
    if (!std::isnan(x)) pairs.emplace_back(x, train.target_numeric[row]);
  }
  return std::ssize(pairs) < kRowsToJudge ? 0 : rank_correlation(pairs);
}

/// Returns false for nearly all columns with which the target does not only rise or only fall,
/// after comparing a few pairs of rows, so that tables of many columns cost little.
bool may_follow_in_order(size_t c, size_t columns, const Partition& train) {
  constexpr size_t kPairs = 32, kContraryMax = 3;
  const auto rows = static_cast<size_t>(train.rows);
  size_t rises = 0, falls = 0, differ = 0;
  for (size_t pair = 0; pair < kPairs; ++pair) {
    const size_t row = pair * rows / kPairs, other = (row + rows / 2) % rows;
    const float dx = train.numeric[row * columns + c] - train.numeric[other * columns + c];
    const float dy = train.target_numeric[row] - train.target_numeric[other];
    if (dy == 0 || std::isnan(dx)) continue;
    ++differ;
    rises += (dx > 0) == (dy > 0) && dx != 0 ? 1 : 0;
    falls += (dx > 0) != (dy > 0) && dx != 0 ? 1 : 0;
  }
  return std::max(rises, falls) + kContraryMax >= differ;
}

/// Returns whether the target only rises, or only falls, with the column. A target that rises with
/// time does not follow from it.
bool follows_in_order(const ColumnSchema& column, size_t c, size_t columns,
                      const Partition& train) {
  const auto above = [&](int64_t rows, double least) {
    return std::fabs(rank_correlation_of(c, columns, train, rows)) > least;
  };
  return may_follow_in_order(c, columns, train) && !is_time_name(column.name) &&
         above(kSampleRows, kSampleCorrelationMin) && above(kRankedRowsMax, kRankCorrelationMin);
}

std::vector<TargetLeak> find_number_leaks(const DatasetSchema& schema, const DatasetStatistics& s,
                                          const Partition& train) {
  std::vector<TargetLeak> leaks;
  const std::vector<double> r = correlations(schema, s, train);
  size_t number = 0;
  for (const ColumnSchema& column : schema.columns) {
    if (column.kind != ColumnSchema::Kind::kNumeric) continue;
    const size_t c = number++;
    if (!column.date.empty()) continue;
    const int64_t rows = train.rows - column.missing_count;
    const std::string begin =
        "determines the target " + quoted_value(schema.target.name) + " by itself: ";
    const std::string end = ", in " + std::to_string(rows) + " rows";
    if (std::fabs(r[c]) > kCorrelationMin) {
      leaks.push_back(
          {column.name, rows, begin + "their correlation is " + short_number(r[c]) + end});
    } else if (follows_in_order(column, c, r.size(), train)) {
      leaks.push_back({column.name, rows,
                       begin + "one always " + (r[c] > 0 ? "rises" : "falls") +
                           " with the other, as by a formula" + end});
    }
  }
  return leaks;
}

}  // namespace

std::vector<TargetLeak> find_target_leaks(const DatasetSchema& schema, const DatasetStatistics& s,
                                          const Partition& train) {
  if (train.rows < kRowsToJudge) return {};
  if (schema.target.kind == TargetSchema::Kind::kClass) return ClassLeaks(schema, s, train).find();
  if (schema.target.kind == TargetSchema::Kind::kNumeric && s.target) {
    return find_number_leaks(schema, s, train);
  }
  return {};
}

}  // namespace trainyard
