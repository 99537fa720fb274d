#include "src/planning/batch_choice.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainyard {
namespace {

constexpr int64_t kRowsTriedMax = 65536;
constexpr int64_t kRowsByDefault = 64;  // the default of Recipe::batch_size
constexpr double kNearBest = 0.95;
constexpr int64_t kNodesPlannedMax = 100'000;  // in all trials together, which takes some seconds
constexpr int kTriesLeast = 3;

/// Converts 12345.6 to "12,346"; a rate below 100 has two or three digits.
std::string rate_text(double rows_per_second) {
  if (rows_per_second < 100) {
    std::string text = std::to_string(rows_per_second);
    return text.substr(0, rows_per_second < 10 ? 4 : 2);
  }
  std::string text = std::to_string(std::llround(rows_per_second));
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

std::string rows_text(int64_t rows) {
  return std::to_string(rows) + (rows == 1 ? " row" : " rows");
}

BatchChoice batch_of(int64_t rows, const std::string& why) {
  return {rows, "batch_size auto: " + rows_text(rows) + ", " + why +
                    ". The learning rate is not scaled with it"};
}

struct Tried {
  int64_t rows = 0;
  BatchTrial trial;
};

/// Tries `unit`, then twice as many rows, since one row is too few for augmentations that mix rows.
/// If both fail, prefers an error that is not about the batch size.
Result<Tried> try_first(const BatchSearch& search) {
  Result<BatchTrial> first = search.try_rows(search.unit);
  if (first.ok()) return Tried{search.unit, std::move(first).value()};
  Result<BatchTrial> second = search.try_rows(2 * search.unit);
  if (second.ok()) return Tried{2 * search.unit, std::move(second).value()};
  const bool of_the_size = first.error().message.find("recipe.batch_size") != std::string::npos;
  const bool of_this = second.error().message.find("recipe.batch_size") != std::string::npos;
  return of_the_size && !of_this ? second.error() : first.error();
}

/// Returns the sizes that are tried after `first`: its products with powers of two.
std::vector<int64_t> further_sizes(const Tried& first) {
  const int64_t rows_max = std::min(first.trial.train_rows, kRowsTriedMax);
  std::vector<int64_t> sizes;
  for (int64_t rows = 2 * first.rows; rows <= rows_max; rows *= 2) sizes.push_back(rows);
  const int64_t nodes = std::max<int64_t>(1, first.trial.nodes);
  const auto tries =
      static_cast<size_t>(std::max<int64_t>(kTriesLeast, kNodesPlannedMax / nodes)) - 1;
  if (sizes.size() <= tries) return sizes;
  const size_t stride = (sizes.size() + tries - 1) / tries;
  std::vector<int64_t> some;
  for (size_t at = stride - 1; at < sizes.size(); at += stride) some.push_back(sizes[at]);
  return some;
}

Result<BatchChoice> choose_without_rates(const BatchSearch& search, const Tried& first) {
  int64_t rows = first.rows;
  while (2 * rows <= std::min(kRowsByDefault, first.trial.train_rows)) rows *= 2;
  const int64_t most = rows;
  for (; rows > first.rows; rows /= 2) {
    ASSIGN_OR_RETURN(const BatchTrial trial, search.try_rows(rows));
    if (search.plan_bytes_max == 0 || trial.plan_bytes <= search.plan_bytes_max) break;
  }
  const std::string why = rows < most              ? "the most up to 64 that fit"
                          : rows == kRowsByDefault ? "the default"
                                                   : "the nearest to the default of 64";
  return batch_of(rows, why + ": " + first.trial.rows_per_second.error().message);
}

}  // namespace

Result<BatchChoice> choose_batch_size(const BatchSearch& search) {
  const auto fits = [&](const BatchTrial& trial) {
    return search.plan_bytes_max == 0 || trial.plan_bytes <= search.plan_bytes_max;
  };
  ASSIGN_OR_RETURN(Tried first, try_first(search));
  if (!fits(first.trial)) return batch_of(first.rows, "the smallest, which does not fit either");
  if (!first.trial.rows_per_second.ok()) return choose_without_rates(search, first);
  std::vector<std::pair<int64_t, double>> rates;  // (rows, rows per second) of sizes that fit
  rates.emplace_back(first.rows, *first.trial.rows_per_second);
  for (const int64_t rows : further_sizes(first)) {
    ASSIGN_OR_RETURN(const BatchTrial trial, search.try_rows(rows));
    if (!fits(trial)) break;
    if (trial.rows_per_second.ok()) rates.emplace_back(rows, *trial.rows_per_second);
  }
  const auto best = std::ranges::max_element(rates, {}, &std::pair<int64_t, double>::second);
  const auto chosen = std::ranges::find_if(
      rates, [&](const auto& rate) { return rate.second >= kNearBest * best->second; });
  const std::string forecast = "forecast " + rate_text(chosen->second) + " rows/s, ";
  return batch_of(chosen->first, chosen == best
                                     ? forecast + "the best of those that fit"
                                     : forecast + "within 5 % of the best of those that fit (" +
                                           rows_text(best->first) + ": " + rate_text(best->second) +
                                           ")");
}

}  // namespace trainyard
