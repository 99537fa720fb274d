// src/data/table/row_filler.h: a table's records into typed rows, once it is known what each column
// is. Ingest and predict share it, so that a value means the same in both.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/problems.h"
#include "src/data/table/category_codes.h"
#include "src/data/table/csv_cell.h"
#include "src/data/typed_rows.h"

namespace trainyard {

/// What to do with one column of a file.
struct ColumnRole {
  enum class Kind : uint8_t {
    kIgnored,
    kNumeric,
    kDate,
    kCategorical,
    kPixel,
    kText,
    kTargetClass,
    kTargetNumeric
  } kind = Kind::kIgnored;
  int64_t index = 0;  // within its kind: where the value goes; of a date, its first number
  int64_t parts = 0;  // of a date: how many numbers it is
};

/// The names that text cells become codes by.
struct Codebook {
  std::vector<CategoryCodes> categories;  // by categorical column
  CategoryCodes classes;
  bool whole_classes = false;  // class names are whole numbers: "1.0" is class 1
  bool notes_unseen = false;   // unknown categories are noted in the rows: those to predict
  bool learning = false;       // unknown names are added; else categories become -1, and an unknown
                               // class is a problem
};

class RowFiller {
 public:
  struct Layout {
    std::vector<ColumnRole> roles;   // by column of the file
    std::vector<std::string> names;  // by column of the file, for messages
    int64_t numeric = 0, categorical = 0, pixels = 0;
    DType pixel_dtype = DType::kF32;
    std::shared_ptr<const Tokenizer> tokenizer;  // where columns are text; of many layouts
    int64_t text_length = 0;                     // tokens of a row
  };
  RowFiller(std::string what, Layout layout, const CellReader& cells, Codebook& codebook,
            TypedRows& rows, Problems& problems);

  /// Takes the memory for `rows` rows.
  void reserve(int64_t rows);
  /// Appends one row. `fields` has one entry per column of the file. A bad cell is added to the
  /// problems, and the row is then of no use.
  void add(std::span<const std::string_view> fields, int64_t line);
  /// A row that is left out: it counts where messages number rows.
  void skip() { ++skipped_; }
  /// The file's column of the target; beyond the last where there is none.
  size_t target_column() const { return target_; }
  /// Missing values seen, by column of the file.
  const std::vector<int64_t>& missing() const { return missing_; }

 private:
  void set_numeric(size_t column, std::string_view text);
  void set_date(size_t column, std::string_view text);
  void set_category(size_t column, std::string_view text);
  void note_unseen(size_t column, std::string_view text);
  void set_pixel(size_t column, std::string_view text);
  void add_text(size_t column, std::string_view text);
  void finish_text();
  void set_class(size_t column, std::string_view text);
  void set_target(size_t column, std::string_view text);
  /// The code of a new name, or -1 with a problem.
  int32_t learn(size_t column, std::string_view text, CategoryCodes& codes, int64_t max,
                const char* remedy);
  /// False, with a problem, if a name is invalid.
  bool check_name(size_t column, std::string_view text);
  void refuse(size_t column, std::string description);
  void refuse_number(size_t column, std::string_view text, const Cell& cell);

  std::string what_;
  Layout layout_;
  const CellReader& cells_;
  Codebook& codebook_;
  TypedRows& rows_;
  Problems& problems_;
  std::vector<int64_t> missing_;
  std::vector<bool> overflowed_;
  std::string text_;  // of the row
  int64_t line_ = 0;
  int64_t skipped_ = 0;
  size_t target_ = 0;
};

}  // namespace trainyard
