// src/data/table/row_filler.h: converts a table's records to typed rows by the role of each column.
// Ingest and predict share it, so that a value means the same in both.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/problems.h"
#include "src/data/table/category_codes.h"
#include "src/data/table/csv_cell.h"
#include "src/data/table/date.h"
#include "src/data/typed_rows.h"

namespace trainyard {

/// How a column of a file is used.
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
  int64_t index = 0;  // index of the value among those of its kind; of a date's first number
  int64_t parts = 0;  // the number of numbers of a date
  double offset = 0;  // is subtracted from numbers, and from the days of a date
  std::optional<std::string> unit = {};  // of numbers, as in ColumnSchema
  DateOrder date_order = DateOrder::kYearFirst;
};

/// The codes of categories and classes.
struct Codebook {
  std::vector<CategoryCodes> categories;  // by categorical column
  CategoryCodes classes;
  bool notes_unseen = false;  // unknown categories are recorded in RawRows::unseen, for predict
  bool learning = false;      // unknown names are added; otherwise an unknown category becomes -1,
                              // and an unknown class is a problem
};

class RowFiller {
 public:
  struct Layout {
    std::vector<ColumnRole> roles;          // one per column of the file
    std::vector<std::string> names;         // one per column of the file, for messages
    std::vector<std::string> unknown = {};  // columns of the file that the schema does not have
    int64_t numeric = 0, categorical = 0, pixels = 0;
    DType pixel_dtype = DType::kF32;
    std::shared_ptr<const Tokenizer> tokenizer;  // null unless columns are text; shared by copies
    int64_t text_length = 0;                     // tokens per row
    int32_t padding = 0;                         // the token that fills short rows
  };
  RowFiller(std::string what, Layout layout, const CellReader& cells, Codebook& codebook,
            TypedRows& rows, Problems& problems);

  /// Reserves memory for `rows` rows.
  void reserve(int64_t rows);
  /// Appends one row. `fields` has one entry per column of the file. A bad cell is added to the
  /// problems; the row must then not be used.
  void add(std::span<const std::string_view> fields, int64_t line);
  /// Leaves out a row, which is counted when messages number rows.
  void skip() { ++skipped_; }
  /// Returns the index of the target's column in the file; the number of columns if there is no
  /// target.
  size_t target_column() const { return target_; }
  /// Returns the number of missing values so far, by column of the file.
  const std::vector<int64_t>& missing() const { return missing_; }

 private:
  void set_numeric(size_t column, std::string_view text);
  /// Reads a number of the column, which may have the column's unit.
  Cell read_number(size_t column, std::string_view text) const;
  void set_date(size_t column, std::string_view text);
  void set_category(size_t column, std::string_view text);
  void note_unseen(size_t column, std::string_view text);
  void set_pixel(size_t column, std::string_view text);
  void add_text(size_t column, std::string_view text);
  void finish_text();
  void set_class(size_t column, std::string_view text);
  void set_target(size_t column, std::string_view text);
  /// Returns whether the text is no category or class of a column with these codes.
  bool is_missing_name(std::string_view text, const CategoryCodes& codes) const;
  /// Returns the name that the text means there. `buffer` keeps a changed one.
  std::string_view name_of(std::string_view text, const CategoryCodes& codes,
                           std::string& buffer) const;
  /// Adds a new name and returns its code, or adds a problem and returns -1.
  int32_t learn(size_t column, std::string_view text, CategoryCodes& codes, int64_t max,
                const char* remedy);
  /// Returns false and adds a problem if a name is invalid.
  bool check_name(size_t column, std::string_view text);
  void refuse(size_t column, std::string description);
  /// Returns how to read a text that is a number in another spelling; empty if it is none.
  std::string spelling_remedy(std::string_view text) const;
  void refuse_number(size_t column, std::string_view text, const Cell& cell);

  std::string what_;
  Layout layout_;
  const CellReader& cells_;
  Codebook& codebook_;
  TypedRows& rows_;
  Problems& problems_;
  std::vector<int64_t> missing_;
  std::vector<bool> overflowed_;
  std::string text_;  // the joined text columns of the current row
  int64_t line_ = 0;
  int64_t skipped_ = 0;
  size_t target_ = 0;
};

}  // namespace trainyard
