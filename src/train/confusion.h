// src/train/confusion.h: confusion matrices, [label][prediction], for people.
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

/// Lines of a table, labels down and predictions across. Beyond kConfusionClassesShown classes
/// those that are confused most often, as a list.
inline constexpr size_t kConfusionClassesShown = 20;
std::string confusion_text(const std::vector<std::vector<int64_t>>& confusion,
                           const std::vector<std::string>& classes);

}  // namespace trainyard
