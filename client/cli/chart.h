// client/cli/chart.h: curves over steps, drawn in a terminal or as an SVG document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainyard::cli {

enum class Stroke { kSolid, kDashed, kDotted };

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // (x, y) with ascending x; values that are not
                                                  // finite leave a gap
  size_t colour = 0;                              // curves with the same number have the same color
  Stroke stroke = Stroke::kSolid;
  bool faint = false;  // drawn paler, behind more important curves; not in terminals
  bool level = false;  // a horizontal line over the whole width
};

struct Chart {
  std::string title;
  std::vector<Curve> curves;
  bool logarithmic = false;  // applies to the y axis; values that are not positive are omitted
  // The range of steps, the same for charts that are shown together; empty: that of the curves.
  std::optional<std::pair<double, double>> steps = {};
};

/// Returns the exponential moving average with bias correction, as in TensorBoard: s_i = weight
/// s_{i-1} + (1 - weight) y_i, divided by 1 - weight^i, so that the curve does not start near 0.
/// `weight` is in [0, 1).
Curve smooth(Curve curve, double weight);

/// Returns the values at which an axis in [low, high] is labeled, at most `count_max`: 1, 2 or 5
/// times powers of ten. A logarithmic axis has powers of ten, with their multiples by 2 and 5 if
/// there is room.
std::vector<double> axis_ticks(double low, double high, int count_max, bool logarithmic);
/// Returns a tick's label: "0.05", "12k", "1e-6".
std::string tick_text(double value);

struct TerminalCanvas {
  int columns = 80;
  int rows = 16;  // rows for the curves, without axis and legend
  bool utf8 = true;
  bool colour = true;
};
/// Draws with Braille dots if the terminal has UTF-8 and can distinguish the curves by color, or if
/// there is a single curve; otherwise with one letter per curve. No line is longer than `columns`.
std::string draw_terminal(const Chart& chart, const TerminalCanvas& canvas);

/// Returns one SVG document with the charts below each other. client/local draws the same charts as
/// a PNG file.
std::string draw_svg(const std::vector<Chart>& charts);

}  // namespace trainyard::cli
