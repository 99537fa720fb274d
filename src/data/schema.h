// src/data/schema.h: what a dataset holds. JSON of it is stored beside the arrays
// (docs/datasets.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/models/model_spec.h"
#include "src/tensor/shape.h"

namespace trainyard {

struct ColumnSchema {
  enum class Kind : uint8_t { kNumeric, kCategorical } kind = Kind::kNumeric;
  std::string name;
  std::vector<std::string> categories;  // categorical: sorted; code = index
  int64_t missing_count = 0;            // in the training rows
};

struct TargetSchema {
  enum class Kind : uint8_t { kClass, kNumeric } kind = Kind::kClass;
  std::string name;
  std::vector<std::string> classes;  // class: label = index; whole numbers sorted as numbers
};

struct DatasetSchema {
  enum class Kind : uint8_t { kTabular, kImage } kind = Kind::kTabular;
  std::vector<ColumnSchema> columns;  // tabular features in file order, target left out
  Shape image;                        // image: [C, H, W]
  DType image_dtype = DType::kU8;     // image: U8 (0..255) or F32
  TargetSchema target;
  int64_t train_rows = 0;
  int64_t test_rows = 0;  // rows that came as a test set of their own; never trained on

  // How CSV rows are read again for predict. The columns are all of the source's, in file order
  // (features, target, ignored ones); empty for IDX.
  std::vector<std::string> source_columns;
  std::vector<std::string> ignored_columns;
  char delimiter = ',';
  std::vector<std::string> missing_values = {"", "NA", "NaN", "nan", "null", "?"};

  int64_t numeric_columns() const;
  int64_t categorical_columns() const;
  /// Sample shape that the preprocessing produces, and the outputs that the target asks for.
  ModelInterface interface() const;
  std::string to_json() const;
  /// Refusal: DATASET_INVALID. What it returns is consistent with itself.
  static Result<DatasetSchema> from_json(std::string_view text);
};

/// Bytes that may separate the fields of a CSV file: ASCII, printable or a tab, no quote.
bool is_csv_delimiter(char c);

}  // namespace trainyard
