// client/cli/chart_drawing.h: the layout of charts, shared by all file formats. A Drawing renders
// lines, text and curves in one of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/cli/chart.h"

namespace trainyard::cli {

/// 0xrrggbb
using Colour = uint32_t;

struct Point {
  double x = 0, y = 0;
};

struct TextStyle {
  double size = 12;
  bool bold = false;
  Colour colour = 0x444444;
};

/// Which point of a text is at its place.
enum class Anchor { kStart, kMiddle, kEnd };

/// Units are pixels of a screen, from the top left corner; y of a text is its baseline.
class Drawing {
 public:
  virtual ~Drawing() = default;
  virtual void line(Point from, Point to, Colour colour) = 0;
  virtual void text(Point at, Anchor anchor, const TextStyle& style, std::string_view text) = 0;
  /// Points joined one by one; each list is a piece by itself.
  virtual void curve(const std::vector<std::vector<Point>>& pieces, Colour colour,
                     Stroke stroke) = 0;
  virtual void dot(Point centre, double radius, Colour colour) = 0;
};

/// Of all charts below each other: width in x, height in y.
Point charts_size(const std::vector<Chart>& charts);
void draw_charts(const std::vector<Chart>& charts, Drawing& drawing);

inline constexpr double kCurveWidth = 1.6;
/// Lengths of a line and of the gap behind it.
constexpr std::pair<double, double> dashes_of(Stroke stroke) {
  return stroke == Stroke::kDashed ? std::pair(7.0, 3.5) : std::pair(1.6, 3.2);
}

}  // namespace trainyard::cli
