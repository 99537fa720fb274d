#include "client/cli/table.h"

#include <algorithm>

#include "src/base/check.h"

namespace trainyard::cli {

void Table::add(std::vector<Cell> cells) {
  TRAINYARD_CHECK(cells.size() == columns_.size(), "a row has as many cells as the table columns");
  for (Cell& cell : cells) cell.text = safe_text(cell.text);
  rows_.push_back(std::move(cells));
}

std::string Table::render(bool colour) const {
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    int width = display_width(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[c].text));
    widths.push_back(width);
  }
  std::string out;
  const auto add_line = [&](const auto& text_of, const auto& style_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& text = text_of(c);
      const std::string pad(static_cast<size_t>(widths[c] - display_width(text)), ' ');
      const bool last = c + 1 == columns_.size();
      if (columns_[c].right) line += pad;
      line += text.empty() ? "" : paint(colour, style_of(c), text);
      if (!columns_[c].right && !last) line += pad;
      if (!last) line += "  ";
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  };
  add_line([&](size_t c) -> const std::string& { return columns_[c].title; },
           [](size_t) { return Style::kBold; });
  for (const auto& row : rows_) {
    add_line([&](size_t c) -> const std::string& { return row[c].text; },
             [&](size_t c) { return row[c].style; });
  }
  return out;
}

std::string render_fields(const std::vector<std::pair<std::string, Cell>>& fields, bool colour) {
  int width = 0;
  for (const auto& [name, cell] : fields) {
    if (!cell.text.empty()) width = std::max(width, display_width(name));
  }
  std::string out;
  for (const auto& [name, cell] : fields) {
    if (cell.text.empty()) continue;
    const std::string pad(static_cast<size_t>(width - display_width(name)) + 2, ' ');
    out += name + ":" + pad + paint(colour, cell.style, safe_text(cell.text)) + "\n";
  }
  return out;
}

std::string csv_field(std::string_view text) {
  std::string value;
  const bool formula =
      !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
  // A plain number may begin with a sign.
  const bool number = text.find_first_not_of("+-.0123456789eE") == std::string_view::npos;
  if (formula && !number) value = "'";
  value += text;
  if (value.find_first_of(",\"\n\r") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace trainyard::cli
