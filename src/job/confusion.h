// src/job/confusion.h: texts and figures derived from confusion matrices, which are
// [label][prediction] counts of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

/// The number of rows of class `label` for which class `prediction` was predicted.
struct Mistake {
  size_t label = 0, prediction = 0;
  int64_t count = 0;
};
/// Returns the `count_max` most frequent mistakes, or all if there are fewer. Mistakes of equal
/// count are in the order of the classes.
std::vector<Mistake> most_confused(const std::vector<std::vector<int64_t>>& confusion,
                                   size_t count_max);

/// Precision, recall and F1 of one class; a figure is 0 if its denominator is.
struct ClassFigures {
  int64_t rows = 0;  // rows with this label
  double precision = 0, recall = 0, f1 = 0;
};
/// Returns the figures of each class, in the order of the classes.
std::vector<ClassFigures> class_figures(const std::vector<std::vector<int64_t>>& confusion);

/// A table with a line per label and a column per prediction. If there are more classes than
/// kConfusionClassesShown, a list of the most frequent mistakes instead.
inline constexpr size_t kConfusionClassesShown = 20;
std::string confusion_text(const std::vector<std::vector<int64_t>>& confusion,
                           const std::vector<std::string>& classes);

}  // namespace trainyard
