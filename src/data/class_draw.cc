#include "src/data/class_draw.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "src/base/check.h"
#include "src/base/philox.h"

namespace trainyard {
namespace {

/// Returns the most rows that may be drawn of a class.
int64_t most_drawn(int64_t rows) { return std::max<int64_t>(rows - 1, 0); }

/// Returns the rows of each class, in ascending order.
std::vector<std::vector<int64_t>> rows_by_class(std::span<const int32_t> classes) {
  const int32_t last = classes.empty() ? -1 : std::ranges::max(classes);
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(last + 1));
  for (size_t i = 0; i < classes.size(); ++i) {
    rows[static_cast<size_t>(classes[i])].push_back(static_cast<int64_t>(i));
  }
  return rows;
}

std::vector<int64_t> sizes_of(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<int64_t> sizes;
  for (const std::vector<int64_t>& of_class : rows) sizes.push_back(std::ssize(of_class));
  return sizes;
}

/// Returns the classes in the order in which they give one row more: by falling remainder of their
/// share, equal ones at random.
std::vector<int64_t> by_remainder(std::span<const int64_t> class_rows, double share,
                                  const DrawKey& key) {
  std::vector<int64_t> order = permutation(std::ssize(class_rows), key.seed,
                                           stream_of(std::string(key.purpose) + " classes"), 0);
  const auto remainder = [&](int64_t k) {
    const double exact = share * static_cast<double>(class_rows[static_cast<size_t>(k)]);
    return exact - std::floor(exact);
  };
  std::ranges::stable_sort(order, std::greater(), remainder);
  return order;
}

/// Returns how many of the positions 0 .. end - 1, dealt to the folds in turn, are dealt to `fold`.
int64_t dealt_before(int64_t end, int64_t folds, int64_t fold) {
  return (end + folds - 1 - fold) / folds;
}

void check_fold(int64_t folds, int64_t fold) {
  TRAINYARD_CHECK(folds >= 2 && fold >= 0 && fold < folds,
                  "fold " + std::to_string(fold) + " of " + std::to_string(folds));
}

/// Calls visit(row) for the rows of class `k` in random order.
template <typename Visit>
void visit_shuffled(const std::vector<int64_t>& rows, size_t k, const DrawKey& key, Visit visit) {
  const std::vector<int64_t> order =
      permutation(std::ssize(rows), key.seed, stream_of(key.purpose), k);
  for (const int64_t i : order) visit(rows[static_cast<size_t>(i)]);
}

}  // namespace

int64_t validation_row_count(int64_t rows, double share) {
  return std::llround(static_cast<double>(rows) * share);
}

int64_t count_drawn(std::span<const int64_t> class_rows, double share) {
  int64_t rows = 0, most = 0;
  for (const int64_t count : class_rows) {
    rows += count;
    most += most_drawn(count);
  }
  return std::min(validation_row_count(rows, share), most);
}

std::vector<int64_t> count_drawn_by_class(std::span<const int64_t> class_rows, double share,
                                          const DrawKey& key) {
  std::vector<int64_t> drawn;
  int64_t missing = count_drawn(class_rows, share);
  for (const int64_t count : class_rows) {
    const auto down = static_cast<int64_t>(std::floor(share * static_cast<double>(count)));
    // Rounding may make the sum of the shares larger than their total.
    drawn.push_back(std::min({down, most_drawn(count), missing}));
    missing -= drawn.back();
  }
  if (missing == 0) return drawn;
  const std::vector<int64_t> order = by_remainder(class_rows, share, key);
  while (missing > 0) {
    for (const int64_t k : order) {
      const auto i = static_cast<size_t>(k);
      if (missing == 0 || drawn[i] == most_drawn(class_rows[i])) continue;
      ++drawn[i];
      --missing;
    }
  }
  return drawn;
}

std::vector<int64_t> count_fold_by_class(std::span<const int64_t> class_rows, int64_t folds,
                                         int64_t fold) {
  check_fold(folds, fold);
  std::vector<int64_t> counts;
  int64_t begin = 0;
  for (const int64_t rows : class_rows) {
    const int64_t end = begin + (rows > 1 ? rows : 0);
    counts.push_back(dealt_before(end, folds, fold) - dealt_before(begin, folds, fold));
    begin = end;
  }
  return counts;
}

std::vector<bool> draw_by_class(std::span<const int32_t> classes, double share,
                                const DrawKey& key) {
  std::vector<bool> drawn(classes.size());
  const std::vector<std::vector<int64_t>> rows = rows_by_class(classes);
  const std::vector<int64_t> counts = count_drawn_by_class(sizes_of(rows), share, key);
  for (size_t k = 0; k < rows.size(); ++k) {
    if (counts[k] == 0) continue;
    int64_t missing = counts[k];
    visit_shuffled(rows[k], k, key, [&](int64_t row) {
      if (missing-- > 0) drawn[static_cast<size_t>(row)] = true;
    });
  }
  return drawn;
}

std::vector<bool> draw_fold_by_class(std::span<const int32_t> classes, int64_t folds, int64_t fold,
                                     const DrawKey& key) {
  check_fold(folds, fold);
  std::vector<bool> drawn(classes.size());
  const std::vector<std::vector<int64_t>> rows = rows_by_class(classes);
  int64_t position = 0;
  for (size_t k = 0; k < rows.size(); ++k) {
    if (rows[k].size() < 2) continue;
    visit_shuffled(rows[k], k, key, [&](int64_t row) {
      drawn[static_cast<size_t>(row)] = position++ % folds == fold;
    });
  }
  return drawn;
}

}  // namespace trainyard
