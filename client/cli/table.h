// client/cli/table.h: tables with aligned columns for people.
#pragma once

#include <string>
#include <vector>

#include "client/cli/terminal.h"

namespace trainyard::cli {

struct Cell {
  Cell(std::string t = "", Style s = Style::kPlain)
      : text(std::move(t)), style(s) {}  // NOLINT: implicit
  Cell(const char* t) : text(t) {}       // NOLINT
  std::string text;  // may come from any source; escaped by Table::add() and render_fields()
  Style style;
};

struct Column {
  std::string title;
  bool right = false;  // right-aligned, for numbers
  // If the table is wider than the terminal: texts are cut at their end, and the column is left out
  // if all its cells are empty.
  bool shortens = false;
  int shortest = 12;     // minimum width of a column that shortens
  bool is_name = false;  // texts are cut in the middle, once other columns have their minimum
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }
  /// Renders a header line and one line per row, with two spaces between columns and no trailing
  /// spaces.
  std::string render(bool colour) const;
  /// Renders for `out`: with full width in a file or pipe, and on a terminal within its width, if
  /// shrinking the columns allows it.
  std::string render(const Terminal& out) const;
  /// Renders for a terminal of `width` columns; 0: unlimited.
  std::string render(bool colour, int width, bool utf8 = false) const;
  /// Returns the number of columns that render() uses without a limit.
  int natural_width() const;
  /// Returns the number of columns that render() uses at least.
  int least_width() const;

 private:
  /// Returns the widths at which the table fits into `width`, if possible; kHidden for a column
  /// that is left out.
  std::vector<int> column_widths(int width) const;
  std::vector<int> natural_widths() const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// Returns lines of "name:  value" with aligned values; rows with empty values are left out. Longer
/// lines than `width` columns are wrapped; 0: unlimited.
std::string render_fields(const std::vector<std::pair<std::string, Cell>>& fields, bool colour,
                          int width = 0);

/// Quotes a CSV field. Text that a spreadsheet would execute as a formula gets a leading
/// apostrophe.
std::string csv_field(std::string_view text);

}  // namespace trainyard::cli
