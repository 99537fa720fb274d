// Curves drawn with characters: a grid of cells, each of 2 x 4 Braille dots or one letter.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "client/cli/chart_scale.h"
#include "client/cli/terminal.h"

namespace trainyard::cli {
namespace {

constexpr std::array kStyles = {Style::kBusy, Style::kNotice, Style::kGood,
                                Style::kBad,  Style::kBold,   Style::kPlain};
constexpr std::string_view kLetters = "*ox+#@%&";
constexpr int kRowsPerTick = 3;
constexpr int kColumnsPerTick = 10;

Style style_of(const Curve& curve) { return kStyles[curve.colour % kStyles.size()]; }

std::string utf8_of(uint32_t code) {  // for code points U+0800 .. U+FFFF
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

struct Glyph {
  uint8_t dots = 0;
  int curve = -1;  // the curve that drew here last
};

class Grid {
 public:
  Grid(int columns, int rows, bool braille)
      : columns_(columns),
        rows_(rows),
        dots_x_(braille ? 2 : 1),
        dots_y_(braille ? 4 : 1),
        braille_(braille),
        cells_(static_cast<size_t>(columns * rows)) {}

  int width() const { return columns_ * dots_x_; }
  int height() const { return rows_ * dots_y_; }

  /// Sets a dot; (0, 0) is at the bottom left.
  void dot(int x, int y, int curve) {
    if (x < 0 || x >= width() || y < 0 || y >= height()) return;
    const int down = height() - 1 - y;
    Glyph& cell = at(x / dots_x_, down / dots_y_);
    // The bits of the eight dots above U+2800: dots 1 2 3 7 are the left column from the top, 4 5 6
    // 8 the right one.
    static constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cell.dots |= kBits[down % dots_y_][x % dots_x_];
    cell.curve = curve;
  }

  /// Draws a line of Braille dots or letters. `length` is the length of the curve so far, from
  /// which the gaps of a dashed line follow; lines of letters have no gaps.
  void line(int x0, int y0, int x1, int y1, int curve, Stroke stroke, int& length) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      if (i > 0) ++length;
      if (braille_ && stroke == Stroke::kDashed && length % 8 >= 5) continue;
      if (braille_ && stroke == Stroke::kDotted && length % 4 != 0) continue;
      const double t = static_cast<double>(i) / steps;
      dot(static_cast<int>(std::lround(x0 + t * (x1 - x0))),
          static_cast<int>(std::lround(y0 + t * (y1 - y0))), curve);
    }
  }

  std::string row(int r, const Chart& chart, bool colour) {
    std::string out;
    for (int c = 0; c < columns_; ++c) {
      const Glyph& cell = at(c, r);
      if (cell.curve < 0) {
        out += ' ';
        continue;
      }
      const auto curve = static_cast<size_t>(cell.curve);
      const std::string mark = braille_ ? utf8_of(0x2800u + cell.dots)
                                        : std::string(1, kLetters[curve % kLetters.size()]);
      out += paint(colour, style_of(chart.curves[curve]), mark);
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
  }

 private:
  Glyph& at(int column, int row) {
    return cells_[static_cast<size_t>(row) * static_cast<size_t>(columns_) +
                  static_cast<size_t>(column)];
  }

  int columns_, rows_, dots_x_, dots_y_;
  bool braille_;
  std::vector<Glyph> cells_;
};

void draw(Grid& grid, const Chart& chart, const ChartScales& scales) {
  const auto place = [](double share, int size) {
    return static_cast<int>(std::lround(share * (size - 1)));
  };
  for (const size_t i : drawing_order(chart)) {
    const int curve = static_cast<int>(i);
    for (const auto& piece : curve_pieces(chart.curves[i], scales, grid.width())) {
      int last_x = place(piece[0].first, grid.width());
      int last_y = place(piece[0].second, grid.height());
      int length = 0;
      grid.dot(last_x, last_y, curve);
      for (const auto& [px, py] : piece) {
        const int x = place(px, grid.width()), y = place(py, grid.height());
        grid.line(last_x, last_y, x, y, curve, chart.curves[i].stroke, length);
        last_x = x, last_y = y;
      }
    }
  }
}

std::string braille_mark(Stroke stroke) {  // the legend's sample of a curve, two cells wide
  switch (stroke) {
    case Stroke::kDashed:
      return utf8_of(0x2812) + utf8_of(0x2802);
    case Stroke::kDotted:
      return utf8_of(0x2802) + utf8_of(0x2802);
    default:
      return utf8_of(0x2812) + utf8_of(0x2812);
  }
}

std::string legend(const Chart& chart, const TerminalCanvas& canvas, bool braille) {
  std::string line, out;
  int columns = 0;
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const std::string mark = braille ? braille_mark(chart.curves[i].stroke)
                                     : std::string(1, kLetters[i % kLetters.size()]);
    std::string name = safe_text(chart.curves[i].name);
    const int width = (braille ? 2 : 1) + 1 + display_width(name);
    if (columns > 0 && columns + 3 + width > canvas.columns) {
      out += line + "\n";
      line.clear();
      columns = 0;
    }
    if (columns > 0) line += "   ";
    line += paint(canvas.colour, style_of(chart.curves[i]), mark) + " " + name;
    columns += (columns > 0 ? 3 : 0) + width;
  }
  return line.empty() ? out : out + line + "\n";
}

}  // namespace

std::string draw_terminal(const Chart& chart, const TerminalCanvas& canvas) {
  const ChartScales scales = scales_of(chart);
  const bool braille = canvas.utf8 && (canvas.colour || chart.curves.size() == 1);
  const int rows = std::max(canvas.rows, 3);

  // Each label of the y axis is in the row nearest to its value.
  std::vector<std::string> labels(static_cast<size_t>(rows));
  size_t label_width = 0;
  for (const double tick : axis_ticks(scales.y.low(), scales.y.high(),
                                      std::max(2, rows / kRowsPerTick), chart.logarithmic)) {
    const double share = scales.y.at(tick).value_or(0);
    const int row = rows - 1 - static_cast<int>(std::lround(share * (rows - 1)));
    labels[static_cast<size_t>(std::clamp(row, 0, rows - 1))] = tick_text(tick);
    label_width = std::max(label_width, tick_text(tick).size());
  }
  const int columns = std::max(canvas.columns - static_cast<int>(label_width) - 2, 10);
  Grid grid(columns, rows, braille);
  draw(grid, chart, scales);

  const std::string title = safe_text(chart.title) + (scales.cuts_start ? kCutNote : "");
  std::string out = paint(canvas.colour, Style::kBold, title) + "\n";
  out += legend(chart, canvas, braille);
  for (int r = 0; r < rows; ++r) {
    const std::string& label = labels[static_cast<size_t>(r)];
    const std::string axis = label.empty() ? (canvas.utf8 ? "│" : "|") : (canvas.utf8 ? "┤" : "+");
    out += paint(canvas.colour, Style::kDim,
                 std::string(label_width - label.size(), ' ') + label + " " + axis);
    out += grid.row(r, chart, canvas.colour) + "\n";
  }
  // The x axis is a line with ticks; the labels are centered below the ticks.
  std::string numbers(static_cast<size_t>(columns), ' ');
  std::vector<bool> marks(static_cast<size_t>(columns), false);
  size_t free_from = 0;
  for (const double tick :
       axis_ticks(scales.x.low(), scales.x.high(), std::max(2, columns / kColumnsPerTick), false)) {
    const auto at = static_cast<size_t>(std::lround(*scales.x.at(tick) * (columns - 1)));
    const std::string text = tick_text(tick);
    size_t begin = at - std::min(at, text.size() / 2);
    begin = std::min(begin, static_cast<size_t>(columns) -
                                std::min<size_t>(text.size(), static_cast<size_t>(columns)));
    marks[at] = true;
    if (begin < free_from) continue;
    numbers.replace(begin, text.size(), text);
    free_from = begin + text.size() + 1;
  }
  std::string axis = canvas.utf8 ? "└" : "+";
  for (const bool mark : marks) {
    axis += canvas.utf8 ? (mark ? "┬" : "─") : (mark ? "+" : "-");
  }
  const std::string indent(label_width + 1, ' ');
  out += indent + paint(canvas.colour, Style::kDim, axis) + "\n";
  numbers.resize(std::min(numbers.size(), numbers.find_last_not_of(' ') + 1));
  out += indent + " " + paint(canvas.colour, Style::kDim, numbers) + "\n";
  return out;
}

}  // namespace trainyard::cli
