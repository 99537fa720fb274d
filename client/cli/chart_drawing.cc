#include "client/cli/chart_drawing.h"

#include <array>

#include "client/cli/chart_scale.h"
#include "client/cli/terminal.h"

namespace trainyard::cli {
namespace {

constexpr double kWidth = 760, kHeight = 340;  // of a chart whose legend takes one line
constexpr double kLeft = 70, kRight = 20, kTop = 64, kBottom = 46;
constexpr double kLegendLine = 18;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
// Okabe and Ito's palette, which people with color blindness can distinguish.
constexpr std::array<Colour, 7> kColours = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7,
                                            0xe69f00, 0x56b4e9, 0x000000};
constexpr Colour kGrid = 0xdddddd, kAxis = 0x444444;
constexpr TextStyle kTitle{16, true, 0x000000};

Colour colour_of(const Curve& curve) {
  const Colour full = kColours[curve.colour % kColours.size()];
  if (!curve.faint) return full;
  Colour mixed = 0;  // the color mixed with white
  for (const int shift : {0, 8, 16}) {
    mixed |= (0xff - (0xff - (full >> shift & 0xff)) * 2 / 5) << shift;
  }
  return mixed;
}

void draw_axes(const ChartScales& scales, double top, Drawing& out) {
  const double bottom = top + kTop + kPlotHeight;
  for (const double tick : axis_ticks(scales.y.low(), scales.y.high(), 8, scales.y.logarithmic())) {
    const double y = bottom - scales.y.at(tick).value_or(0) * kPlotHeight;
    out.line({kLeft, y}, {kLeft + kPlotWidth, y}, kGrid);
    out.text({kLeft - 8, y + 4}, Anchor::kEnd, {}, tick_text(tick));
  }
  for (const double tick : axis_ticks(scales.x.low(), scales.x.high(), 8, false)) {
    const double x = kLeft + scales.x.at(tick).value_or(0) * kPlotWidth;
    out.line({x, bottom}, {x, bottom + 5}, kAxis);
    out.text({x, bottom + 20}, Anchor::kMiddle, {}, tick_text(tick));
  }
  out.line({kLeft, bottom}, {kLeft + kPlotWidth, bottom}, kAxis);
  out.text({kLeft + kPlotWidth / 2, bottom + 38}, Anchor::kMiddle, {}, "step");
}

void draw_curve(const Curve& curve, const ChartScales& scales, double top, Drawing& out) {
  const Colour colour = colour_of(curve);
  std::vector<std::vector<Point>> pieces;
  for (const auto& piece : curve_pieces(curve, scales, static_cast<int>(kPlotWidth))) {
    std::vector<Point>& points = pieces.emplace_back();
    for (const auto& [x, y] : piece) {
      points.push_back({kLeft + x * kPlotWidth, top + kTop + (1 - y) * kPlotHeight});
    }
  }
  if (pieces.empty()) return;
  out.curve(pieces, colour, curve.stroke);
  for (const std::vector<Point>& piece : pieces) {  // a line with a single point would be invisible
    if (piece.size() == 1) out.dot(piece[0], 2.5, colour);
  }
}

/// Returns the position of each curve's name in the legend: next to each other, in as many lines as
/// needed. The width of a name is estimated from the average width of a letter.
std::vector<Point> legend_places(const Chart& chart) {
  std::vector<Point> places;
  Point at;
  for (const Curve& curve : chart.curves) {
    const double width = 24 + 7.0 * display_width(curve.name) + 20;
    if (at.x > 0 && at.x + width > kPlotWidth) at = {0, at.y + kLegendLine};
    places.push_back(at);
    at.x += width;
  }
  return places;
}

double chart_height(const Chart& chart) {
  const std::vector<Point> places = legend_places(chart);
  return kHeight + (places.empty() ? 0 : places.back().y);
}

void draw_chart(const Chart& chart, double top, Drawing& out) {
  const ChartScales scales = scales_of(chart);
  out.text({kLeft, top + 24}, Anchor::kStart, kTitle,
           chart.title + (scales.cuts_start ? kCutNote : ""));
  const std::vector<Point> places = legend_places(chart);
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const double x = kLeft + places[i].x, y = top + 45 + places[i].y;
    out.curve({{{x, y - 4}, {x + 18, y - 4}}}, colour_of(chart.curves[i]), chart.curves[i].stroke);
    out.text({x + 24, y}, Anchor::kStart, {}, chart.curves[i].name);
  }
  const double plot_top = top + chart_height(chart) - kHeight;
  draw_axes(scales, plot_top, out);
  for (const size_t i : drawing_order(chart)) draw_curve(chart.curves[i], scales, plot_top, out);
}

}  // namespace

Point charts_size(const std::vector<Chart>& charts) {
  Point size{kWidth, 0};
  for (const Chart& chart : charts) size.y += chart_height(chart);
  return size;
}

void draw_charts(const std::vector<Chart>& charts, Drawing& drawing) {
  double top = 0;
  for (const Chart& chart : charts) {
    draw_chart(chart, top, drawing);
    top += chart_height(chart);
  }
}

}  // namespace trainyard::cli
