// client/cli/chart.h: curves over steps, drawn in a terminal or as SVG.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trainyard::cli {

enum class Stroke { kSolid, kDashed, kDotted };

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y) with ascending x; values that are not
                                                  // finite leave a gap
  size_t colour = 0;                              // curves of one number have one color
  Stroke stroke = Stroke::kSolid;
  bool faint = false;  // behind another curve that matters more; in pictures alone
  bool level = false;  // a line of one value over the whole width
};

struct Chart {
  std::string title;
  std::vector<Curve> curves;
  bool logarithmic = false;  // the y axis; omits values that are not positive
};

/// Exponential moving average: s_i = weight s_{i-1} + (1 - weight) y_i, divided by 1 - weight^i, so
/// that they do not begin at 0, as in TensorBoard. `weight` in [0, 1).
Curve smooth(Curve curve, double weight);

/// Values at which an axis is labeled: 1, 2 or 5 times powers of ten, at most `count_max` of them,
/// within [low, high]. Logarithmic: powers of ten, with their 2 and 5 folds if those are few.
std::vector<double> axis_ticks(double low, double high, int count_max, bool logarithmic);
/// A tick as people read it: "0.05", "12k", "1e-6".
std::string tick_text(double value);

struct TerminalCanvas {
  int columns = 80;
  int rows = 16;  // of the curves only
  bool utf8 = true;
  bool colour = true;
};
/// Braille dots if the terminal has them and colors, or a single curve, distinguish the curves;
/// otherwise a letter for each curve. No line is longer than `columns`.
std::string draw_terminal(const Chart& chart, const TerminalCanvas& canvas);

/// One SVG document, the charts below each other. client/local draws the same as a PNG file.
std::string draw_svg(const std::vector<Chart>& charts);

}  // namespace trainyard::cli
