// client/init/text_worth.h: whether long texts or the columns beside them tell more about a target,
// since a text model reads only text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "src/base/result.h"
#include "src/data/dataset.h"

namespace trainyard::init {

/// The roles of a table's columns in the comparison, as indices.
struct WorthColumns {
  size_t count = 0;  // of all columns
  size_t target = 0;
  bool classes = true;  // else the target is a number, of which the side of the median counts
  std::vector<size_t> texts;
  std::vector<size_t> numbers;
  std::vector<size_t> categories;
};

/// The shares of held-out rows that are predicted right.
struct TextWorth {
  int64_t rows = 0;    // held out
  double texts = 0;    // from the words
  double columns = 0;  // from the numbers and categories
};

/// Compares by two naive Bayes classifiers, which learn from one half of the first rows and predict
/// the other half. Nothing if there are too few rows or too many classes to compare. `options` name
/// the target. Errors are those of the reader.
Result<std::optional<TextWorth>> compare_text(const CsvOptions& options,
                                              const std::filesystem::path& path,
                                              const WorthColumns& columns);

}  // namespace trainyard::init
