#include "src/data/load/split.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "src/base/check.h"
#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/data/class_draw.h"
#include "src/data/dataset.h"
#include "src/data/load/windows.h"

namespace trainyard {
namespace {

constexpr std::string_view kSplitPurpose = "split";

DrawKey key_of(const SplitRule& rule) { return {rule.seed, kSplitPurpose}; }

/// Divides the rows by whether they are held out. Marking the rows instead of sorting takes linear
/// time and gives ascending lists.
Split divided(const std::vector<bool>& held_out) {
  Split split;
  const auto validation = std::ranges::count(held_out, true);
  split.validation.reserve(static_cast<size_t>(validation));
  split.train.reserve(held_out.size() - static_cast<size_t>(validation));
  for (size_t row = 0; row < held_out.size(); ++row) {
    (held_out[row] ? split.validation : split.train).push_back(static_cast<int64_t>(row));
  }
  return split;
}

/// Returns the groups by falling number of rows, equal ones in random order.
std::vector<int64_t> by_size(std::span<const int64_t> group_rows, std::vector<int64_t> order) {
  std::ranges::stable_sort(order, std::greater(),
                           [&](int64_t g) { return group_rows[static_cast<size_t>(g)]; });
  return order;
}

/// Returns for each group whether it is in the fold: each group, the largest first, goes to the
/// fold with the fewest rows so far.
std::vector<bool> fold_of_groups(std::span<const int64_t> group_rows, const SplitRule& rule,
                                 std::vector<int64_t> order) {
  std::vector<bool> held(group_rows.size());
  std::vector<int64_t> rows(static_cast<size_t>(rule.folds));
  for (const int64_t g : by_size(group_rows, std::move(order))) {
    const auto least = std::ranges::min_element(rows);
    *least += group_rows[static_cast<size_t>(g)];
    held[static_cast<size_t>(g)] = least - rows.begin() == rule.fold - 1;
  }
  return held;
}

/// Returns for each group whether it is held out. In random order, each group is held out that
/// brings the number of rows nearer to the share; at least one group is, and one is not.
std::vector<bool> share_of_groups(std::span<const int64_t> group_rows, const SplitRule& rule,
                                  const std::vector<int64_t>& order) {
  std::vector<bool> held(group_rows.size());
  const int64_t all = std::accumulate(group_rows.begin(), group_rows.end(), int64_t{0});
  const int64_t wanted = validation_row_count(all, rule.share);
  int64_t rows = 0, groups = 0;
  for (const int64_t g : order) {
    const int64_t size = group_rows[static_cast<size_t>(g)];
    if (std::abs(rows + size - wanted) >= wanted - rows || groups + 1 == std::ssize(order)) {
      continue;
    }
    held[static_cast<size_t>(g)] = true;
    rows += size;
    ++groups;
  }
  if (groups == 0 && order.size() > 1) {
    held[static_cast<size_t>(by_size(group_rows, order).back())] = true;
  }
  return held;
}

std::vector<bool> held_groups(std::span<const int64_t> group_rows, const SplitRule& rule) {
  std::vector<int64_t> order =
      permutation(std::ssize(group_rows), rule.seed, stream_of("split groups"), 0);
  return rule.folds > 0 ? fold_of_groups(group_rows, rule, std::move(order))
                        : share_of_groups(group_rows, rule, order);
}

Split split_by_group(const DatasetSchema& schema, const Partition& train, const SplitRule& rule) {
  const std::vector<bool> held = held_groups(schema.split.group_rows, rule);
  std::vector<bool> held_out(static_cast<size_t>(train.rows));
  for (size_t row = 0; row < held_out.size(); ++row) {
    held_out[row] = held[static_cast<size_t>(train.group[row])];
  }
  return divided(held_out);
}

/// Rows of the same time are in the order of the file.
Split split_by_time(const Partition& train, const SplitRule& rule) {
  std::vector<int64_t> order(static_cast<size_t>(train.rows));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, {},
                           [&](int64_t row) { return train.time[static_cast<size_t>(row)]; });
  std::vector<bool> held_out(order.size());
  const auto last = static_cast<size_t>(validation_row_count(train.rows, rule.share));
  for (const int64_t row : std::span(order).last(last)) held_out[static_cast<size_t>(row)] = true;
  return divided(held_out);
}

Split split_by_class(std::span<const int32_t> classes, const SplitRule& rule) {
  return divided(rule.folds > 0
                     ? draw_fold_by_class(classes, rule.folds, rule.fold - 1, key_of(rule))
                     : draw_by_class(classes, rule.share, key_of(rule)));
}

/// Returns the number of rows of each class; a single number if the rule does not divide by class.
std::vector<int64_t> class_rows(const DatasetSchema& schema, const SplitRule& rule) {
  if (!splits_by_class(schema, rule)) return {schema.train_rows};
  return schema.statistics->classes;
}

}  // namespace

Split split_rows(int64_t rows, double share, uint64_t seed) {
  TRAINYARD_CHECK(rows >= 0 && share >= 0 && share <= 1,
                  "validation split of " + std::to_string(share));
  std::vector<bool> held_out(static_cast<size_t>(rows));
  const int64_t validation = validation_row_count(rows, share);
  if (validation > 0) {
    const std::vector<int64_t> order = permutation(rows, seed, stream_of(kSplitPurpose), 0);
    for (int64_t i = 0; i < validation; ++i) {
      held_out[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
    }
  }
  return divided(held_out);
}

bool splits_by_class(const DatasetSchema& schema, const SplitRule& rule) {
  return schema.target.kind == TargetSchema::Kind::kClass && schema.statistics.has_value() &&
         rule.group.empty() && rule.time.empty();
}

int64_t count_validation_rows(const DatasetSchema& schema, const SplitRule& rule) {
  if (!rule.group.empty()) {
    const std::vector<int64_t>& rows = schema.split.group_rows;
    const std::vector<bool> held = held_groups(rows, rule);
    int64_t count = 0;
    for (size_t g = 0; g < rows.size(); ++g) count += held[g] ? rows[g] : 0;
    return count;
  }
  if (rule.folds > 0) {
    const std::vector<int64_t> counts =
        count_fold_by_class(class_rows(schema, rule), rule.folds, rule.fold - 1);
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  }
  return splits_by_class(schema, rule) ? count_drawn(class_rows(schema, rule), rule.share)
                                       : validation_row_count(schema.train_rows, rule.share);
}

std::vector<int64_t> count_training_classes(const DatasetSchema& schema, const SplitRule& rule) {
  TRAINYARD_CHECK(splits_by_class(schema, rule), "the split is not by class");
  std::vector<int64_t> counts = schema.statistics->classes;
  const std::vector<int64_t> held = rule.folds > 0
                                        ? count_fold_by_class(counts, rule.folds, rule.fold - 1)
                                        : count_drawn_by_class(counts, rule.share, key_of(rule));
  for (size_t k = 0; k < counts.size(); ++k) counts[k] -= held[k];
  return counts;
}

Split split_dataset(const DatasetSchema& schema, const Partition& train, int64_t context_length,
                    const SplitRule& rule) {
  if (schema.stream()) {
    const WindowPlan plan = plan_windows(schema, context_length, rule.share);
    return {window_starts(0, plan.train, context_length),
            window_starts(plan.validation_first, plan.validation, context_length), plan.shift_max};
  }
  if (!rule.group.empty()) return split_by_group(schema, train, rule);
  if (!rule.time.empty()) return split_by_time(train, rule);
  if (splits_by_class(schema, rule)) return split_by_class(train.target_class, rule);
  if (rule.folds == 0) return split_rows(train.rows, rule.share, rule.seed);
  return split_by_class(std::vector<int32_t>(static_cast<size_t>(train.rows)), rule);
}

std::vector<int64_t> count_classes(const DatasetSchema& schema, const Partition& partition,
                                   std::span<const int64_t> rows) {
  std::vector<int64_t> counts(schema.target.classes.size());
  if (partition.target_class.empty()) return counts;
  for (const int64_t row : rows) {
    ++counts[static_cast<size_t>(partition.target_class[static_cast<size_t>(row)])];
  }
  return counts;
}

Status check_classes_remain(const DatasetSchema& schema, const SplitRule& rule,
                            std::span<const int64_t> training_classes) {
  if (!schema.statistics.has_value()) return {};
  const std::vector<int64_t>& all = schema.statistics->classes;
  for (size_t k = 0; k < training_classes.size(); ++k) {
    if (training_classes[k] > 0 || all[k] == 0) continue;
    const bool by_time = !rule.time.empty();
    return field_error(
        "CLASS_NOT_TRAINED", by_time ? "recipe.split.time" : "recipe.split.group",
        "the class " + quoted_value(schema.target.classes[k]) + " has no row to train on: all " +
            std::to_string(all[k]) + " of its rows are held out" +
            (by_time ? " because they are the latest; expected a smaller recipe.validation_split, "
                       "or rows of this class in earlier times"
                     : " with their groups; expected another recipe.seed, a smaller "
                       "recipe.validation_split, or rows of this class in more groups"));
  }
  return {};
}

std::vector<int64_t> test_rows(const DatasetSchema& schema, int64_t context_length) {
  if (!schema.stream()) return window_starts(0, schema.test_rows, 1);
  return window_starts(0, plan_windows(schema, context_length, 0).test, context_length);
}

}  // namespace trainyard
