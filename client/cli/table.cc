#include "client/cli/table.h"

#include <algorithm>

#include "src/base/check.h"

namespace trainyard::cli {
namespace {

/// The beginning of a sentence in at most `width` columns, with dots for the rest.
std::string cut_end(const std::string& text, int width) {
  constexpr std::string_view kDots = "...";
  size_t end = text.size();
  while (end > 0 && display_width(std::string_view(text).substr(0, end)) >
                        width - static_cast<int>(kDots.size())) {
    do {
      --end;
    } while (end > 0 &&
             (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);  // whole characters
  }
  return text.substr(0, end) + std::string(kDots);
}

}  // namespace

void Table::add(std::vector<Cell> cells) {
  TRAINYARD_CHECK(cells.size() == columns_.size(), "a row has as many cells as the table columns");
  for (Cell& cell : cells) cell.text = safe_text(cell.text);
  rows_.push_back(std::move(cells));
}

std::string Table::render(bool colour) const { return render(colour, 0); }

std::string Table::render(const Terminal& out) const {
  return render(out.colour(), out.is_terminal() ? out.width() : 0);
}

std::vector<int> Table::column_widths(int width) const {
  constexpr int kShortest = 12;
  std::vector<int> widths;
  int total = 2 * (static_cast<int>(columns_.size()) - 1);
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(display_width(columns_[c].title));
    for (const auto& row : rows_) {
      widths.back() = std::max(widths.back(), display_width(row[c].text));
    }
    total += widths.back();
  }
  for (; width > 0 && total > width; --total) {  // the widest one gives a column
    int* widest = nullptr;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (columns_[c].shortens && widths[c] > std::max(kShortest, widest ? *widest : 0)) {
        widest = &widths[c];
      }
    }
    if (widest == nullptr) break;
    --*widest;
  }
  return widths;
}

std::string Table::render(bool colour, int width) const {
  const std::vector<int> widths = column_widths(width);
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
  std::string cut;
  for (const auto& row : rows_) {
    add_line(
        [&](size_t c) -> const std::string& {
          if (display_width(row[c].text) <= widths[c]) return row[c].text;
          return cut = cut_end(row[c].text, widths[c]);
        },
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
