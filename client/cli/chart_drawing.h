// client/cli/chart_drawing.h: the layout of charts, shared by all file formats. A Drawing renders
// the lines, texts and curves in one file format.
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

/// The point of a text that is placed at the given position.
enum class Anchor { kStart, kMiddle, kEnd };

/// Output of one file format. Units are pixels from the top left corner; a text's y is its
/// baseline.
class Drawing {
 public:
  virtual ~Drawing() = default;
  virtual void line(Point from, Point to, Colour colour) = 0;
  virtual void text(Point at, Anchor anchor, const TextStyle& style, std::string_view text) = 0;
  /// Draws polylines, one for each list of points.
  virtual void curve(const std::vector<std::vector<Point>>& pieces, Colour colour,
                     Stroke stroke) = 0;
  virtual void dot(Point centre, double radius, Colour colour) = 0;
};

/// Returns the size of all charts below each other: width in x, height in y.
Point charts_size(const std::vector<Chart>& charts);
void draw_charts(const std::vector<Chart>& charts, Drawing& drawing);

inline constexpr double kCurveWidth = 1.6;
/// Returns the length of a dash and of the gap after it, in pixels.
constexpr std::pair<double, double> dashes_of(Stroke stroke) {
  return stroke == Stroke::kDashed ? std::pair(7.0, 3.5) : std::pair(1.6, 3.2);
}

}  // namespace trainyard::cli
