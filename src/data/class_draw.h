// src/data/class_draw.h: draws rows at random so that every class gives the same share, as even as
// whole numbers allow. The draw depends on (seed, purpose) and the rows' classes alone.
//
// A class gives its share rounded down; the rows that are still missing come from the classes whose
// shares were cut most (the largest remainders, as in scikit-learn's StratifiedShuffleSplit), equal
// ones in random order. A class never gives its last row.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace trainyard {

/// Keys the random numbers of a draw.
struct DrawKey {
  uint64_t seed = 0;
  std::string_view purpose;  // the name of a Philox stream, such as "split"
};

/// Returns the number of rows in a share of all, rounded to the nearest whole number, which may be
/// 0 or all.
int64_t validation_row_count(int64_t rows, double share);

/// Returns the number of rows that are drawn of all classes together. `class_rows` has the number
/// of rows of each class.
int64_t count_drawn(std::span<const int64_t> class_rows, double share);

/// Returns the number of rows that are drawn of each class.
std::vector<int64_t> count_drawn_by_class(std::span<const int64_t> class_rows, double share,
                                          const DrawKey& key);

/// Returns the number of rows of each class in fold `fold` (from 0) of `folds`. The numbers of a
/// class in two folds differ by at most 1, and so do the sizes of two folds. A class with a single
/// row is in no fold, because without this row nothing could be learned about it.
std::vector<int64_t> count_fold_by_class(std::span<const int64_t> class_rows, int64_t folds,
                                         int64_t fold);

/// Returns for each row whether it is drawn. `classes` has the class of each row, numbered from 0.
std::vector<bool> draw_by_class(std::span<const int32_t> classes, double share, const DrawKey& key);

/// Returns for each row whether it is in fold `fold` (from 0) of `folds`. With the same key, each
/// row of a class with several rows is in exactly one fold.
std::vector<bool> draw_fold_by_class(std::span<const int32_t> classes, int64_t folds, int64_t fold,
                                     const DrawKey& key);

}  // namespace trainyard
