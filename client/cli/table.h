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
  bool right = false;  // numbers
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> cells);
  bool empty() const { return rows_.empty(); }
  /// A header line and one line per row, two spaces between columns, no trailing spaces.
  std::string render(bool colour) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

/// "name:  value" lines with aligned values; rows with empty values are left out.
std::string render_fields(const std::vector<std::pair<std::string, Cell>>& fields, bool colour);

/// Spreadsheets execute cells that begin like this: such fields get a leading apostrophe.
std::string csv_field(std::string_view text);

}  // namespace trainyard::cli
