// client/cli/table.h: aligned columns for people.
#pragma once

#include <string>
#include <vector>

#include "client/cli/terminal.h"

namespace trainyard::cli {

struct Cell {
  Cell(std::string t = "", Style s = Style::kPlain)
      : text(std::move(t)), style(s) {}  // NOLINT: implicit
  Cell(const char* t) : text(t) {}       // NOLINT
  std::string text;                      // from any source: escaped when rendered
  Style style;
};

struct Column {
  std::string title;
  bool right = false;     // numbers
  bool shortens = false;  // sentences: cut at their end where the table is wider than its terminal
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }
  /// A header line and one line per row, two spaces between columns, no trailing spaces.
  std::string render(bool colour) const;
  /// The same for `out`: as wide as it has to be in a file or pipe; on a terminal, columns that
  /// shorten make it as wide as that, if they can.
  std::string render(const Terminal& out) const;
  /// For a terminal of this many columns; 0: without a bound.
  std::string render(bool colour, int width) const;

 private:
  std::vector<int> column_widths(int width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// "name:  value" lines with aligned values; rows with empty values are left out.
std::string render_fields(const std::vector<std::pair<std::string, Cell>>& fields, bool colour);

/// Spreadsheets execute cells that begin like this: such fields get a leading apostrophe.
std::string csv_field(std::string_view text);

}  // namespace trainyard::cli
