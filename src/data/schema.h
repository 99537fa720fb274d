// src/data/schema.h: what a dataset holds. JSON of it is stored beside the arrays
// (docs/datasets.md).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/image/image_resize.h"
#include "src/data/text/tokenizer.h"
#include "src/models/model_spec.h"
#include "src/tensor/shape.h"

namespace trainyard {

struct ColumnSchema {
  enum class Kind : uint8_t { kNumeric, kCategorical, kText } kind = Kind::kNumeric;
  std::string name;
  std::vector<std::string> categories;  // categorical: sorted; code = index
  int64_t missing_count = 0;            // in the training rows
  // Numeric: the source's column of dates that this is a part of, else empty. The parts of a date
  // stand together, in the order of src/data/table/date.h.
  std::string date = {};
};

struct TargetSchema {
  /// kNextToken: each token of a text is the target of those before it.
  enum class Kind : uint8_t { kClass, kNumeric, kNextToken } kind = Kind::kClass;
  std::string name;
  std::vector<std::string> classes;  // class: label = index; whole numbers sorted as numbers
};

/// Of a population of numbers; the deviation divides by their count, as NumPy's does.
struct NumberStatistics {
  double min = 0, max = 0, mean = 0, std = 0;

  bool operator==(const NumberStatistics&) const = default;
};

/// What the training rows hold, counted at ingest (statistics.h).
struct DatasetStatistics {
  std::vector<std::optional<NumberStatistics>> numeric;  // by numeric column; none: all missing
  std::vector<std::vector<int64_t>> categories;    // by categorical column: rows of each category
  std::vector<int64_t> classes;                    // rows of each class
  std::optional<NumberStatistics> target;          // a number
  std::vector<NumberStatistics> channels;          // of images, in the pixels' own unit
  std::optional<NumberStatistics> tokens_per_row;  // of rows of text, cut and without the padding

  bool operator==(const DatasetStatistics&) const = default;
};

/// What training accepts and what rarely gives a good model, found at ingest (warnings.h).
struct DataWarning {
  std::string key;                   // stable: "CONSTANT_COLUMN"
  std::vector<std::string> columns;  // the first of those that it is about; none: target or rows
  int64_t count = 0;                 // of columns, rows or values, as the message says
  std::string message;               // what was found, and what to do

  bool operator==(const DataWarning&) const = default;
};

struct DatasetSchema {
  enum class Kind : uint8_t { kTabular, kImage, kText } kind = Kind::kTabular;
  std::vector<ColumnSchema> columns;      // features in file order, target left out
  TextSchema text;                        // text: rows of tokens, or one stream of them
  Shape image;                            // image: [C, H, W]
  DType image_dtype = DType::kU8;         // image: U8 (0..255) or F32
  ResizeMode resize = ResizeMode::kNone;  // image: how files of other sizes become [H, W]
  int64_t skipped_files = 0;              // of a folder: files that are not rows
  int64_t skipped_rows = 0;               // of tables: rows without a target
  TargetSchema target;
  int64_t train_rows = 0;  // of a stream: its tokens
  int64_t test_rows = 0;   // what came as a test set of its own; never trained on
  std::optional<DatasetStatistics> statistics;  // none: from before they were counted
  std::vector<DataWarning> warnings;            // of a dataset; a model has none

  // How rows of tables are read again for predict. The columns are all of the source's, in file
  // order (features, target, ignored ones); empty for IDX.
  std::vector<std::string> source_columns;
  std::vector<std::string> ignored_columns;
  char delimiter = ',';
  std::vector<std::string> missing_values = {"", "NA", "NaN", "nan", "null", "?"};

  int64_t numeric_columns() const;
  int64_t categorical_columns() const;
  /// True for one stream of tokens, of which samples are windows: a language model's text.
  bool stream() const { return kind == Kind::kText && text.stream(); }
  /// Sample shape that the preprocessing produces, and the outputs that the target asks for. A
  /// sample of a stream has `context_length` tokens, which the job decides; others ignore it.
  ModelInterface interface(int64_t context_length = 0) const;
  nlohmann::json to_json() const;
  /// Refusal: DATASET_INVALID. What it returns is consistent with itself.
  static Result<DatasetSchema> from_json(const nlohmann::json& json);
};

/// Bytes that may separate the fields of a CSV file: ASCII, printable or a tab, no quote.
bool is_csv_delimiter(char c);

}  // namespace trainyard
