#include "client/init/text_worth.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "src/base/text.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/csv_columns.h"
#include "src/data/table/number_spelling.h"
#include "src/data/table/table_reader.h"
#include "src/data/text/word_break.h"

namespace trainyard::init {
namespace {

constexpr size_t kRowsRead = 4000, kRowsMin = 40;
constexpr size_t kClassesMax = 64;
constexpr size_t kBins = 8;  // of a number, with about equally many rows

/// What a row says, each as a text that is the same in rows that say the same.
using Sayings = std::vector<std::string>;

struct Row {
  std::string target;
  double number = 0;  // of a numeric target
  Sayings words;
  Sayings values;
};

/// Adds the words that a text model would read.
void add_words(std::string_view text, Sayings& words) {
  visit_word_segments(text.substr(0, find_invalid_utf8(text).value_or(text.size())),
                      [&](std::string_view segment) {
                        words.push_back(word_of(segment));
                        return true;
                      });
}

/// The first rows of a table, with the numbers of each number column aside, which become values
/// when all are known.
struct Rows {
  std::vector<Row> rows;
  std::vector<std::vector<double>> numbers;  // by number column and row; NaN: missing
};

void add_row(const WorthColumns& columns, const CellReader& cells,
             const std::vector<std::string_view>& fields, Rows& out) {
  const Cell target = cells.read(fields[columns.target]);
  if (target.kind == Cell::Kind::kMissing) return;
  Row& row = out.rows.emplace_back();
  row.target = target_value(target, fields[columns.target]);
  row.number = target.value;
  for (const size_t i : columns.texts) add_words(fields[i], row.words);
  std::ranges::sort(row.words);
  row.words.erase(std::ranges::unique(row.words).begin(), row.words.end());
  for (const size_t i : columns.categories) {
    row.values.push_back(std::to_string(i) + "=" + std::string(fields[i]));
  }
  out.numbers.resize(columns.numbers.size());
  for (size_t c = 0; c < columns.numbers.size(); ++c) {
    const Cell cell = read_spelled(cells, fields[columns.numbers[c]]).cell;
    out.numbers[c].push_back(cell.is_number() ? cell.value : std::nan(""));
  }
}

/// Adds the bin of each number, by the borders that divide the present ones evenly.
void add_bins(const WorthColumns& columns, Rows& all) {
  for (size_t c = 0; c < all.numbers.size(); ++c) {
    std::vector<double> sorted;
    std::ranges::copy_if(all.numbers[c], std::back_inserter(sorted),
                         [](double x) { return !std::isnan(x); });
    if (sorted.empty()) continue;
    std::ranges::sort(sorted);
    for (size_t row = 0; row < all.rows.size(); ++row) {
      const double x = all.numbers[c][row];
      const auto below = std::ranges::lower_bound(sorted, x) - sorted.begin();
      const auto bin = static_cast<size_t>(below) * kBins / sorted.size();
      all.rows[row].values.push_back(std::to_string(columns.numbers[c]) + "=" +
                                     (std::isnan(x) ? "" : std::to_string(bin)));
    }
  }
}

/// Replaces a numeric target by the side of the median on which it lies.
void halve_targets(std::vector<Row>& rows) {
  std::vector<double> numbers;
  for (const Row& row : rows) numbers.push_back(row.number);
  const auto middle = numbers.begin() + std::ssize(numbers) / 2;
  std::ranges::nth_element(numbers, middle);
  for (Row& row : rows) row.target = row.number < *middle ? "below" : "above";
}

/// A naive Bayes classifier, which takes what a row says as independent.
class NaiveBayes {
 public:
  void learn(const std::string& target, const Sayings& sayings) {
    const auto [found, added] = classes_.emplace(target, rows_.size());
    if (added) rows_.push_back(0);
    ++rows_[found->second];
    for (const std::string& saying : sayings) {
      std::vector<double>& counts = counts_[saying];
      counts.resize(kClassesMax);
      ++counts[found->second];
    }
  }
  bool predicts(const std::string& target, const Sayings& sayings) const {
    std::vector<double> scores;
    for (const double rows : rows_) scores.push_back(std::log(rows));
    for (const std::string& saying : sayings) {
      const auto found = counts_.find(saying);
      if (found == counts_.end()) continue;
      for (size_t k = 0; k < scores.size(); ++k) {
        scores[k] += std::log((found->second[k] + 1) / (rows_[k] + 2));
      }
    }
    const auto best = static_cast<size_t>(std::ranges::max_element(scores) - scores.begin());
    const auto own = classes_.find(target);
    return own != classes_.end() && own->second == best;
  }

 private:
  std::map<std::string, size_t> classes_;
  std::vector<double> rows_;  // by class
  std::unordered_map<std::string, std::vector<double>> counts_;
};

/// Returns the share of every second row that is predicted right from the rows between them.
double share_right(const std::vector<Row>& rows, Sayings Row::*sayings) {
  NaiveBayes bayes;
  for (size_t i = 0; i < rows.size(); i += 2) bayes.learn(rows[i].target, rows[i].*sayings);
  double right = 0;
  for (size_t i = 1; i < rows.size(); i += 2) {
    right += bayes.predicts(rows[i].target, rows[i].*sayings) ? 1 : 0;
  }
  return right / static_cast<double>(rows.size() / 2);
}

size_t count_classes(const std::vector<Row>& rows) {
  std::map<std::string_view, int> classes;
  for (const Row& row : rows) ++classes[row.target];
  return classes.size();
}

}  // namespace

Result<std::optional<TextWorth>> compare_text(const CsvOptions& options,
                                              const std::filesystem::path& path,
                                              const WorthColumns& columns) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, "data"));
  ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, open_table(options, *source, "data"));
  const CellReader cells(options.missing, options.number_style());
  Rows all;
  std::vector<std::string_view> fields;
  while (all.rows.size() < kRowsRead) {
    ASSIGN_OR_RETURN(const bool more, table->next(fields));
    if (!more) break;
    if (fields.size() < columns.count) {
      if (!options.json_lines) continue;  // the ingest reports the row
      fields.resize(columns.count);       // it lacks members that come later in the file
    }
    add_row(columns, cells, fields, all);
  }
  if (all.rows.size() < kRowsMin) return std::optional<TextWorth>();
  if (!columns.classes) halve_targets(all.rows);
  if (count_classes(all.rows) > kClassesMax) return std::optional<TextWorth>();
  add_bins(columns, all);
  return std::optional(TextWorth{static_cast<int64_t>(all.rows.size() / 2),
                                 share_right(all.rows, &Row::words),
                                 share_right(all.rows, &Row::values)});
}

}  // namespace trainyard::init
