// src/data/schema.h: the description of a dataset: its columns, target and statistics. It is stored
// as JSON next to the arrays (docs/datasets.md).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/documents_schema.h"
#include "src/data/image/image_resize.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/date.h"
#include "src/data/text/tokenizer.h"
#include "src/models/model_spec.h"
#include "src/tensor/shape.h"

namespace trainyard {

struct ColumnSchema {
  enum class Kind : uint8_t { kNumeric, kCategorical, kText } kind = Kind::kNumeric;
  std::string name;
  std::vector<std::string> categories;  // kCategorical: sorted; a category's code is its index
  int64_t missing_count = 0;            // number of missing values in the training rows
  // Numeric: the name of the source's date column of which this column is a part; else empty. The
  // parts of a date are adjacent, in the order of src/data/table/date.h.
  std::string date = {};
  DateOrder date_order = DateOrder::kYearFirst;  // of a date: how the source writes it
  // Numeric: the stored numbers are the column's numbers minus this one. It is 0 for nearly all
  // columns; ColumnCounts::offset() says for which it is not.
  double offset = 0;
  // Numeric: the unit or currency of the source's numbers, "kg" or "$", and "" if they have none;
  // nullopt if they are plain (number_spelling.h).
  std::optional<std::string> unit = {};
};

struct TargetSchema {
  /// kNextToken: each token of a text is the target of the tokens before it.
  enum class Kind : uint8_t { kClass, kNumeric, kNextToken } kind = Kind::kClass;
  std::string name;
  std::vector<std::string> classes;  // kClass: names by label; whole numbers are sorted as numbers
  double offset = 0;                 // kNumeric: as in ColumnSchema
  std::optional<std::string> unit = {};  // as in ColumnSchema
};

/// Statistics of a set of numbers. `std` is the population standard deviation, as in NumPy.
struct NumberStatistics {
  double min = 0, max = 0, mean = 0, std = 0;

  bool operator==(const NumberStatistics&) const = default;
};

/// Statistics of the training rows, computed at ingest (statistics.h).
struct DatasetStatistics {
  // One value per numeric column; nullopt if all its values are missing.
  std::vector<std::optional<NumberStatistics>> numeric;
  std::vector<std::vector<int64_t>> categories;    // by categorical column: rows of each category
  std::vector<int64_t> classes;                    // rows of each class
  std::optional<NumberStatistics> target;          // of a numeric target
  std::vector<NumberStatistics> channels;          // of images, in the unit of the stored pixels
  std::optional<NumberStatistics> tokens_per_row;  // of text rows, truncated and without padding

  bool operator==(const DatasetStatistics&) const = default;
};

/// A property of the dataset, found at ingest (warnings.h), with which training is possible but
/// rarely gives a good model.
struct DataWarning {
  std::string key;                   // stable key for programs: "CONSTANT_COLUMN"
  std::vector<std::string> columns;  // the first columns concerned; empty: the target or rows are
  int64_t count = 0;                 // number of columns, rows or values, as the message explains
  std::string message;               // the finding and advice

  bool operator==(const DataWarning&) const = default;
};

/// The columns by which a job may split the training rows, named by the ingest options.
struct SplitColumns {
  std::string group = {};                // empty: none
  std::vector<int64_t> group_rows = {};  // the number of training rows of each group
  std::string time = {};                 // empty: none

  bool operator==(const SplitColumns&) const = default;
};

struct DatasetSchema {
  enum class Kind : uint8_t { kTabular, kImage, kText } kind = Kind::kTabular;
  std::vector<ColumnSchema> columns;         // features in file order, without the target
  TextSchema text;                           // kText: rows of tokens, one stream, or documents
  std::optional<DocumentsSchema> documents;  // kText: the tokens are those of documents
  Shape image;                               // kImage: [C, H, W]
  DType image_dtype = DType::kU8;            // kImage: U8 (0..255) or F32
  int64_t image_bits = 8;                 // kImage: 16 if gray image files of 16 bits are numbers
  ResizeMode resize = ResizeMode::kNone;  // kImage: how files of other sizes are resized to [H, W]
  int64_t skipped_files = 0;              // files of a folder that are not rows
  int64_t skipped_rows = 0;               // rows of tables that have no target
  TargetSchema target;
  int64_t train_rows = 0;                       // rows, tokens of a stream, or documents
  int64_t test_rows = 0;                        // those of the test set, which is never trained on
  std::optional<DatasetStatistics> statistics;  // nullopt in schemas of older versions
  std::vector<DataWarning> warnings;            // of the dataset; empty in a model's schema
  SplitColumns split;                           // of the dataset; empty in a model's schema

  // How rows of tables are read for predict. `source_columns` are all columns of the source in file
  // order (features, target, ignored ones); empty for IDX.
  std::vector<std::string> source_columns;
  std::vector<std::string> ignored_columns;
  char delimiter = ',';
  NumberStyle number_style;
  // The texts that are missing in all columns; empty: the defaults of CellReader.
  std::vector<std::string> missing_values;

  int64_t numeric_columns() const;
  int64_t categorical_columns() const;
  /// Returns the offset of each numeric column.
  std::vector<double> numeric_offsets() const;
  /// Returns true for data of language models, which predict each token from those before it.
  bool next_token() const { return target.kind == TargetSchema::Kind::kNextToken; }
  /// Returns true for one stream of tokens, whose windows are the samples.
  bool stream() const { return kind == Kind::kText && text.stream() && !documents; }
  /// Returns the shape of preprocessed samples, and the outputs that the target requires.
  /// `context_length` is the number of tokens of a language model's samples, which the job decides;
  /// otherwise it is ignored.
  ModelInterface interface(int64_t context_length = 0) const;
  nlohmann::json to_json() const;
  /// Refusal: DATASET_INVALID. The returned schema is consistent with itself.
  static Result<DatasetSchema> from_json(const nlohmann::json& json);
};

/// Returns true if `c` may separate the fields of a CSV file: printable ASCII or a tab, but no
/// quote.
bool is_csv_delimiter(char c);

}  // namespace trainyard
