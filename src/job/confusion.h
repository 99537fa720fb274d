// src/job/confusion.h: confusion matrices, [label][prediction], for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard {

/// Rows of one class that were taken for another.
struct Mistake {
  size_t label = 0, prediction = 0;
  int64_t count = 0;
};
/// The most frequent ones, at most `count_max`; equal ones in the order of the classes.
std::vector<Mistake> most_confused(const std::vector<std::vector<int64_t>>& confusion,
                                   size_t count_max);

/// Precision, recall and F1 of one class; 0 where there is nothing to divide by.
struct ClassFigures {
  int64_t rows = 0;  // with this label
  double precision = 0, recall = 0, f1 = 0;
};
/// By class, from [label][prediction].
std::vector<ClassFigures> class_figures(const std::vector<std::vector<int64_t>>& confusion);

/// Lines of a table, labels down and predictions across. Beyond kConfusionClassesShown classes
/// those that are confused most often, as a list.
inline constexpr size_t kConfusionClassesShown = 20;
std::string confusion_text(const std::vector<std::vector<int64_t>>& confusion,
                           const std::vector<std::string>& classes);

}  // namespace trainyard
