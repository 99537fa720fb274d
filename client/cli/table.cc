#include "client/cli/table.h"

#include <algorithm>
#include <limits>

#include "client/cli/shorten.h"
#include "src/base/check.h"

namespace trainyard::cli {
namespace {

constexpr int kHidden = -1;
constexpr int kNameShortest = 20;
constexpr int kGap = 2;

/// Returns the beginning of a text in at most `width` columns, with dots for the rest.
std::string cut_end(const std::string& text, int width, bool utf8) {
  const std::string_view dots = utf8 ? "\u2026" : "...";
  size_t end = text.size();
  while (end > 0 &&
         display_width(std::string_view(text).substr(0, end)) > width - display_width(dots)) {
    do {
      --end;
    } while (end > 0 &&
             // only at character boundaries
             (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80);
  }
  return text.substr(0, end) + std::string(dots);
}

/// Returns the width of a complete line in columns.
int line_width(const std::vector<int>& widths) {
  int total = -kGap;
  for (const int width : widths) total += width == kHidden ? 0 : width + kGap;
  return total;
}

/// Repeatedly takes one column of width from the widest table column that is still wider than
/// `shortest` allows, until the line fits or no column can shrink.
template <typename Shortest>
void shrink(std::vector<int>& widths, int width, Shortest shortest) {
  for (int total = line_width(widths); total > width; --total) {
    int* widest = nullptr;
    for (size_t c = 0; c < widths.size(); ++c) {
      if (widths[c] > std::max(shortest(c), widest != nullptr ? *widest : 0)) widest = &widths[c];
    }
    if (widest == nullptr) return;
    --*widest;
  }
}

}  // namespace

void Table::add(std::vector<Cell> cells) {
  TRAINYARD_CHECK(cells.size() == columns_.size(), "a row has as many cells as the table columns");
  for (Cell& cell : cells) cell.text = safe_text(cell.text);
  rows_.push_back(std::move(cells));
}

std::string Table::render(bool colour) const { return render(colour, 0); }

std::string Table::render(const Terminal& out) const {
  return render(out.colour(), out.line_width(), out.utf8());
}

std::vector<int> Table::natural_widths() const {
  std::vector<int> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(display_width(columns_[c].title));
    for (const auto& row : rows_) {
      widths.back() = std::max(widths.back(), display_width(row[c].text));
    }
  }
  return widths;
}

std::vector<int> Table::column_widths(int width) const {
  std::vector<int> widths = natural_widths();
  if (width <= 0 || line_width(widths) <= width) return widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const bool empty = std::ranges::all_of(rows_, [&](const auto& r) { return r[c].text.empty(); });
    if (columns_[c].shortens && empty) widths[c] = kHidden;
  }
  constexpr int kWhole = std::numeric_limits<int>::max();
  shrink(widths, width,
         [&](size_t c) { return columns_[c].shortens ? columns_[c].shortest : kWhole; });
  shrink(widths, width, [&](size_t c) { return columns_[c].is_name ? kNameShortest : kWhole; });
  return widths;
}

int Table::natural_width() const { return line_width(natural_widths()); }

int Table::least_width() const { return line_width(column_widths(1)); }

std::string Table::render(bool colour, int width, bool utf8) const {
  const std::vector<int> widths = column_widths(width);
  size_t last = widths.size();
  while (last > 0 && widths[last - 1] == kHidden) --last;
  std::string out;
  const auto add_line = [&](const auto& text_of, const auto& style_of) {
    std::string line;
    for (size_t c = 0; c < last; ++c) {
      if (widths[c] == kHidden) continue;
      std::string text = text_of(c);
      if (display_width(text) > widths[c]) {
        text =
            columns_[c].is_name ? shorten(text, widths[c], utf8) : cut_end(text, widths[c], utf8);
      }
      const std::string pad(static_cast<size_t>(widths[c] - display_width(text)), ' ');
      if (columns_[c].right) line += pad;
      line += text.empty() ? "" : paint(colour, style_of(c), text);
      if (!columns_[c].right && c + 1 < last) line += pad;
      if (c + 1 < last) line += std::string(kGap, ' ');
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  };
  add_line([&](size_t c) { return columns_[c].title; }, [](size_t) { return Style::kBold; });
  for (const auto& row : rows_) {
    add_line([&](size_t c) { return row[c].text; }, [&](size_t c) { return row[c].style; });
  }
  return out;
}

std::string render_fields(const std::vector<std::pair<std::string, Cell>>& fields, bool colour,
                          int width) {
  int names = 0;
  for (const auto& [name, cell] : fields) {
    if (!cell.text.empty()) names = std::max(names, display_width(name));
  }
  const int begin = names + 1 + kGap;  // the column at which values begin
  std::string out;
  for (const auto& [name, cell] : fields) {
    if (cell.text.empty()) continue;
    const std::string pad(static_cast<size_t>(names - display_width(name) + kGap), ' ');
    const std::string value = wrapped(safe_text(cell.text), width, begin, begin);
    out += name + ":" + pad + paint(colour, cell.style, value) + "\n";
  }
  return out;
}

std::string csv_field(std::string_view text) {
  std::string value;
  const bool formula =
      !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
  // A plain number may begin with a sign and needs no apostrophe.
  const bool number = text.find_first_not_of("+-.0123456789eE") == std::string_view::npos;
  if (formula && !number) value = "'";
  value += text;
  if (value.find_first_of(",\"\n\r") == std::string::npos) return value;
  std::string quoted = "\"";
  for (const char c : value) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace trainyard::cli
