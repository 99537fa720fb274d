// Curves as SVG 1.1: no script, no style sheet, no font of its own, so that browsers, documents and
// converters show the same.
#include <algorithm>
#include <array>
#include <cstdio>

#include "client/cli/chart_scale.h"
#include "client/cli/terminal.h"

namespace trainyard::cli {
namespace {

constexpr double kWidth = 760, kHeight = 340;  // of one chart with one line of names
constexpr double kLeft = 70, kRight = 20, kTop = 64, kBottom = 46;
constexpr double kLegendLine = 18;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr double kPlotHeight = kHeight - kTop - kBottom;
// Okabe and Ito's palette, which people with colour-blindness can tell apart.
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                 "#e69f00", "#56b4e9", "#000000"};
constexpr std::string_view kSmall = "font-size=\"12\" fill=\"#444444\"";

const char* colour_of(size_t curve) { return kColours[curve % kColours.size()]; }

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : safe_text(text)) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view attributes,
                    std::string_view text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" +
         std::string(anchor) + "\" " + std::string(attributes) + ">" + escaped(text) + "</text>\n";
}

std::string line(double x0, double y0, double x1, double y1, std::string_view colour) {
  return "<line x1=\"" + number(x0) + "\" y1=\"" + number(y0) + "\" x2=\"" + number(x1) +
         "\" y2=\"" + number(y1) + "\" stroke=\"" + std::string(colour) + "\"/>\n";
}

std::string axes(const ChartScales& scales, double top) {
  constexpr std::string_view kGrid = "#dddddd";
  std::string out;
  const double bottom = top + kTop + kPlotHeight;
  for (const double tick : axis_ticks(scales.y.low(), scales.y.high(), 8, scales.y.logarithmic())) {
    const double y = bottom - scales.y.at(tick).value_or(0) * kPlotHeight;
    out += line(kLeft, y, kLeft + kPlotWidth, y, kGrid);
    out += text_at(kLeft - 8, y + 4, "end", kSmall, tick_text(tick));
  }
  for (const double tick : axis_ticks(scales.x.low(), scales.x.high(), 8, false)) {
    const double x = kLeft + scales.x.at(tick).value_or(0) * kPlotWidth;
    out += line(x, bottom, x, bottom + 5, "#444444");
    out += text_at(x, bottom + 20, "middle", kSmall, tick_text(tick));
  }
  out += line(kLeft, bottom, kLeft + kPlotWidth, bottom, "#444444");
  out += text_at(kLeft + kPlotWidth / 2, bottom + 38, "middle", kSmall, "step");
  return out;
}

std::string curve_path(const Curve& curve, const ChartScales& scales, double top,
                       const char* colour) {
  std::string path, dots;
  for (const auto& piece : curve_pieces(curve, scales, static_cast<int>(kPlotWidth))) {
    for (size_t i = 0; i < piece.size(); ++i) {
      const double x = kLeft + piece[i].first * kPlotWidth;
      const double y = top + kTop + (1 - piece[i].second) * kPlotHeight;
      path += (i == 0 ? "M" : "L") + number(x) + " " + number(y);
    }
    if (piece.size() == 1) {  // a path of one point is not seen
      dots += "<circle cx=\"" + number(kLeft + piece[0].first * kPlotWidth) + "\" cy=\"" +
              number(top + kTop + (1 - piece[0].second) * kPlotHeight) + "\" r=\"2.5\" fill=\"" +
              colour + "\"/>\n";
    }
  }
  if (path.empty()) return "";
  return "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + colour +
         "\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>\n" + dots;
}

struct Place {
  double x = 0, y = 0;
};
/// Of each curve's name in the legend: side by side, in as many lines as it takes. An average width
/// per letter is near enough.
std::vector<Place> legend_places(const Chart& chart) {
  std::vector<Place> places;
  Place at;
  for (const Curve& curve : chart.curves) {
    const double width = 24 + 7.0 * display_width(curve.name) + 20;
    if (at.x > 0 && at.x + width > kPlotWidth) at = {0, at.y + kLegendLine};
    places.push_back(at);
    at.x += width;
  }
  return places;
}

double chart_height(const Chart& chart) {
  const std::vector<Place> places = legend_places(chart);
  return kHeight + (places.empty() ? 0 : places.back().y);
}

std::string one_chart(const Chart& chart, double top) {
  const ChartScales scales = scales_of(chart);
  std::string out =
      text_at(kLeft, top + 24, "start", "font-size=\"16\" font-weight=\"bold\"", chart.title);
  const std::vector<Place> places = legend_places(chart);
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const double x = kLeft + places[i].x, y = top + 45 + places[i].y;
    out += "<rect x=\"" + number(x) + "\" y=\"" + number(y - 6) +
           "\" width=\"18\" height=\"3\" fill=\"" + colour_of(i) + "\"/>\n";
    out += text_at(x + 24, y, "start", kSmall, chart.curves[i].name);
  }
  const double plot_top = top + chart_height(chart) - kHeight;
  out += axes(scales, plot_top);
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    out += curve_path(chart.curves[i], scales, plot_top, colour_of(i));
  }
  return out;
}

}  // namespace

std::string draw_svg(const std::vector<Chart>& charts) {
  std::string body;
  double height = 0;
  for (const Chart& chart : charts) {
    body += one_chart(chart, height);
    height += chart_height(chart);
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(kWidth) + "\" height=\"" +
         number(height) + "\" viewBox=\"0 0 " + number(kWidth) + " " + number(height) +
         "\" font-family=\"sans-serif\">\n" +
         "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" + body + "</svg>\n";
}

}  // namespace trainyard::cli
