// Tests of charts in a terminal's character cells, as SVG and as PNG.
#include "client/cli/chart.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "client/cli/chart_scale.h"
#include "client/cli/terminal.h"
#include "client/local/work.h"

namespace trainyard::cli {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(AxisTicks, AreRoundNumbersWithinTheRange) {
  EXPECT_EQ(axis_ticks(0, 10, 5, false), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(1, 264, 5, false), (std::vector<double>{100, 200}));
  EXPECT_EQ(axis_ticks(0.001, 1000, 10, true).size(), 7u);
  EXPECT_EQ(axis_ticks(0.1, 1, 9, true), (std::vector<double>{0.1, 0.2, 0.5, 1}));
  for (const double tick : axis_ticks(3.2, 3.9, 6, true)) {  // the range is less than a decade
    EXPECT_GE(tick, 3.2);
    EXPECT_LE(tick, 3.9 + 1e-9);
  }
  EXPECT_GE(axis_ticks(3.2, 3.9, 6, true).size(), 3u);
}

TEST(AxisTicks, HaveShortLabels) {
  EXPECT_EQ(tick_text(0.05), "0.05");
  EXPECT_EQ(tick_text(12000), "12k");
  EXPECT_EQ(tick_text(2.5e6), "2.5M");
  EXPECT_EQ(tick_text(0), "0");
  EXPECT_EQ(tick_text(1e-6), "1e-06");
}

TEST(Smooth, StartsAtTheFirstValueAndDecays) {
  const Curve out = smooth({"a", {{1, 4}, {2, 4}, {3, kNaN}, {4, 0}}}, 0.5);
  EXPECT_DOUBLE_EQ(out.points[0].second, 4);
  EXPECT_DOUBLE_EQ(out.points[1].second, 4);
  EXPECT_TRUE(std::isnan(out.points[2].second));
  EXPECT_DOUBLE_EQ(out.points[3].second, 1.5 / 0.875);
}

TEST(DrawTerminal, ARisingLineGoesFromBottomLeftToTopRight) {
  const Chart chart{"loss", {{"train/loss", {{0, 0}, {100, 1}}}}};
  const auto lines =
      lines_of(draw_terminal(chart, {.columns = 40, .rows = 8, .utf8 = false, .colour = false}));
  ASSERT_EQ(lines.size(), 2u + 8u + 2u);  // title, names, rows, axis, numbers
  EXPECT_EQ(lines[0], "loss");
  EXPECT_EQ(lines[1], "* train/loss");
  EXPECT_EQ(lines[2].back(), '*');
  EXPECT_EQ(static_cast<int>(lines[2].size()), 40) << "the last column is used";
  EXPECT_NE(lines[9].find("+*"), std::string::npos) << lines[9];
  EXPECT_EQ(lines[9].find("0 "), lines[9].find_first_not_of(' ')) << "the axis is labelled";
  EXPECT_NE(lines[11].find("100"), std::string::npos);
}

TEST(DrawTerminal, BrailleNeedsColourOrASingleCurve) {
  const Curve one{"a", {{0, 0}, {1, 1}}}, two{"b", {{0, 1}, {1, 0}}};
  // The prefixes of U+2800 .. U+283f and of U+28c0 .. U+28ff.
  const std::string dots = "\xe2\xa0", blocks = "\xe2\xa3";
  EXPECT_GT(count(draw_terminal({"t", {one}}, {40, 8, true, false}), dots), 0);
  const std::string letters = draw_terminal({"t", {one, two}}, {40, 8, true, false});
  EXPECT_EQ(count(letters, dots) + count(letters, blocks), 0);
  EXPECT_GT(count(letters, "o"), 3);
  EXPECT_GT(count(draw_terminal({"t", {one, two}}, {40, 8, true, true}), dots), 0);
}

TEST(DrawTerminal, NoLineIsLongerThanTheTerminal) {
  Chart chart{"measure", {}};
  for (int i = 0; i < 9; ++i) {
    chart.curves.push_back({"a-rather-long-job-name-" + std::to_string(i), {{1, i}, {1e7, 2 * i}}});
  }
  for (const int columns : {40, 60, 80, 133}) {
    for (const std::string& line : lines_of(draw_terminal(chart, {columns, 6, true, false}))) {
      EXPECT_LE(display_width(line), columns) << line;
    }
  }
}

TEST(DrawTerminal, NonFiniteValuesLeaveAGapAndNoValuesAreAccepted) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Chart odd{"t", {{"a", {{0, kNaN}, {1, 1}, {2, infinity}, {3, 0}, {4, 2}}}}, true};
  EXPECT_GT(count(draw_terminal(odd, {40, 6, false, false}), "*"), 2);
  const std::vector<Chart> bare = {{"t", {}},
                                   {"t", {{"a", {}}}},
                                   {"t", {{"a", {{5, 5}}}}},
                                   {"t", {{"a", {{1, 0}, {2, 0}}}}},
                                   {"t", {{"a", {{1, kNaN}}}}},
                                   {"t", {{"a", {{1, -1}, {2, -2}}}}, true}};
  for (const Chart& chart : bare) {
    EXPECT_EQ(lines_of(draw_terminal(chart, {30, 4, true, false})).size(),
              (chart.curves.empty() ? 1u : 2u) + 4u + 2u);
    EXPECT_EQ(draw_svg({chart}).find("nan"), std::string::npos);
  }
}

TEST(Scales, CurvesHaveAMarginAndTheFirstStepsDoNotRuleTheScale) {
  Chart chart{"loss", {{"train", {}}}};
  for (int step = 0; step < 100; ++step) {
    chart.curves[0].points.emplace_back(step, step == 0 ? 500.0 : 1.0 + step * 0.01);
  }
  ChartScales scales = scales_of(chart);
  EXPECT_TRUE(scales.cuts_start);
  EXPECT_LT(scales.y.high(), 2.1) << "not 500";
  EXPECT_LT(scales.y.low(), 1.01) << "below the lowest value";
  for (const auto& piece : curve_pieces(chart.curves[0], scales, 100)) {
    for (const auto& [x, y] : piece) EXPECT_LE(y, 1.0) << "a value above is drawn at the edge";
  }
  EXPECT_NE(draw_svg({chart}).find("loss (the first steps are above)"), std::string::npos);
  chart.curves[0].points[0].second = 1.5;  // nothing unusual
  scales = scales_of(chart);
  EXPECT_FALSE(scales.cuts_start);
  EXPECT_GT(scales.y.high(), 1.99);
  chart.steps = {0, 1000};
  EXPECT_EQ(scales_of(chart).x.high(), 1000) << "as in the other charts";
}

TEST(DrawSvg, OnePathForEachPieceAndTextIsEscaped) {
  const std::string svg =
      draw_svg({{"a < b & c", {{"x", {{0, 0}, {1, 1}, {2, kNaN}, {3, 1}, {4, 0}}}}},
                {"second", {{"y", {{0, 1}, {9, 2}}}}}});
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_EQ(count(svg, "<path"), 2 + 2) << "and one beside each name";
  EXPECT_EQ(count(svg, "M"), 3 + 2) << "a gap is no line";
}

TEST(DrawSvg, EachJobHasOneColourWithValidationDashedAndTestAsALine) {
  Curve train{"a train", {{0, 1}, {10, 0}}}, val{"a val", {{0, 2}, {10, 1}}},
      test{"a test 0.5", {{10, 0.5}}};
  val.stroke = Stroke::kDashed;
  test.stroke = Stroke::kDotted;
  test.level = true;
  const std::string svg = draw_svg({{"loss", {val, train, test}}});
  EXPECT_EQ(count(svg, "stroke=\"#0072b2\""), 3 + 3) << "curves and the lines beside their names";
  EXPECT_EQ(count(svg, "stroke-dasharray=\"7.0 3.5\""), 2);
  EXPECT_EQ(count(svg, "<circle"), 0) << "a test is no dot";
  EXPECT_NE(svg.find("M70.0 232.2L740.0 232.2"), std::string::npos) << "over the whole width\n"
                                                                    << svg;
  const std::string text = draw_terminal({"loss", {val, train, test}}, {60, 8, true, true});
  EXPECT_EQ(count(text, "\x1b[36m") > 0, true) << text;
  EXPECT_EQ(count(text, "\x1b[33m") + count(text, "\x1b[32m"), 0) << "one color";
}

TEST(DrawSvg, ALongCurveIsThinnedToTheResolution) {
  Curve curve{"noise", {}};
  for (int i = 0; i < 1'000'000; ++i) curve.points.emplace_back(i, i % 7);
  const std::string svg = draw_svg({{"t", {std::move(curve)}}});
  EXPECT_LT(svg.size(), 40'000u);
  EXPECT_GT(count(svg, "L"), 600);
}

/// A PNG file as libpng reads it, RGB.
struct Picture {
  explicit Picture(const std::string& bytes) {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) return;
    image.format = PNG_FORMAT_RGB;
    width = image.width;
    height = image.height;
    pixels.resize(PNG_IMAGE_SIZE(image));
    if (png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr) == 0) width = 0;
  }
  /// Returns the colour of a pixel as 0xrrggbb.
  unsigned at(size_t x, size_t y) const {
    const unsigned char* p = &pixels[(y * width + x) * 3];
    return unsigned{p[0]} << 16 | unsigned{p[1]} << 8 | p[2];
  }
  /// Returns the number of pixels in the rectangle that are not white.
  int ink(size_t left, size_t top, size_t right, size_t bottom) const {
    int count = 0;
    for (size_t y = top; y < bottom; ++y) {
      for (size_t x = left; x < right; ++x) count += at(x, y) != 0xffffff ? 1 : 0;
    }
    return count;
  }
  size_t width = 0, height = 0;
  std::vector<unsigned char> pixels;
};

TEST(DrawPng, DrawsLinesAndText) {
  const auto drawn =
      draw_png({{"loss", {{"up", {{0, 0}, {100, 1}}}, {"down", {{0, 1}, {100, 0}}, 1}}},
                {"one", {{"point", {{5, 5}}}}}});
  ASSERT_TRUE(drawn.ok()) << drawn.error().message;
  const Picture picture(*drawn);
  ASSERT_EQ(picture.width, 1520u);
  EXPECT_EQ(picture.height, 1360u);
  // The plot area has 1340 x 460 pixels and starts at (140, 128). The picture is drawn at double
  // size.
  EXPECT_EQ(picture.at(140 + 335, 128 + 336), 0x0072b2u) << "a quarter of the way up";
  EXPECT_EQ(picture.at(140 + 335, 128 + 124), 0xd55e00u) << "the other is as far down";
  EXPECT_EQ(picture.at(140 + 335, 128 + 165), 0xffffffu);
  EXPECT_GT(picture.ink(140, 20, 300, 56), 100) << "the title";
  EXPECT_GT(picture.ink(188, 70, 260, 96), 40) << "a name";
  EXPECT_GT(picture.ink(20, 120, 130, 600), 100) << "the numbers of the axis";
  EXPECT_EQ(picture.at(140 + 670, 680 + 128 + 230), 0x0072b2u) << "a point by itself";
  EXPECT_EQ(picture.at(4, 4), 0xffffffu);
}

TEST(DrawPng, RefusesAPictureThatIsTooHigh) {
  const std::vector<Chart> charts(60, Chart{"t", {{"x", {{0, 0}, {1, 1}}}}});
  const auto drawn = draw_png(charts);
  ASSERT_FALSE(drawn.ok());
  EXPECT_EQ(drawn.error().reason, "PLOT_TOO_LARGE");
}

}  // namespace
}  // namespace trainyard::cli
