// Draws charts as PNG with Cairo. They look like those of draw_svg(), with twice the resolution, so
// that they stay sharp in documents.
#include <cairo.h>

#include <array>
#include <cmath>
#include <numbers>

#include "client/cli/chart_drawing.h"
#include "client/cli/terminal.h"
#include "client/local/work.h"
#include "src/base/handle.h"

namespace trainyard::cli {
namespace {

constexpr double kScale = 2;
constexpr int kHeightMax = 32767;  // Cairo's limit

class PngDrawing final : public Drawing {
 public:
  PngDrawing(int width, int height)
      : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height)),
        context_(cairo_create(surface_.get())) {
    set_colour(0xffffff);
    cairo_paint(context_.get());
    cairo_scale(context_.get(), kScale, kScale);
    cairo_set_line_join(context_.get(), CAIRO_LINE_JOIN_ROUND);
  }

  void line(Point from, Point to, Colour colour) override {
    curve_path({from, to});
    draw_path(1, colour);
  }
  void text(Point at, Anchor anchor, const TextStyle& style, std::string_view text) override {
    const std::string shown = safe_text(text);
    cairo_t* c = context_.get();
    cairo_select_font_face(c, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           style.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(c, style.size);
    cairo_text_extents_t extents;
    cairo_text_extents(c, shown.c_str(), &extents);
    const double share = anchor == Anchor::kStart ? 0 : anchor == Anchor::kMiddle ? 0.5 : 1;
    cairo_move_to(c, at.x - share * extents.x_advance, at.y);
    set_colour(style.colour);
    cairo_show_text(c, shown.c_str());
    cairo_new_path(c);
  }
  void curve(const std::vector<std::vector<Point>>& pieces, Colour colour, Stroke stroke) override {
    for (const std::vector<Point>& piece : pieces) curve_path(piece);
    if (stroke != Stroke::kSolid) {
      const auto [line, gap] = dashes_of(stroke);
      const std::array<double, 2> lengths = {line, gap};
      cairo_set_dash(context_.get(), lengths.data(), 2, 0);
    }
    draw_path(kCurveWidth, colour);
    cairo_set_dash(context_.get(), nullptr, 0, 0);
  }
  void dot(Point centre, double radius, Colour colour) override {
    cairo_new_sub_path(context_.get());
    cairo_arc(context_.get(), centre.x, centre.y, radius, 0, 2 * std::numbers::pi);
    fill(colour);
  }

  Result<std::string> document() const {
    std::string bytes;
    const auto append = [](void* to, const unsigned char* data, unsigned size) {
      static_cast<std::string*>(to)->append(reinterpret_cast<const char*>(data), size);
      return CAIRO_STATUS_SUCCESS;
    };
    cairo_status_t status = cairo_status(context_.get());
    if (status == CAIRO_STATUS_SUCCESS) {
      status = cairo_surface_write_to_png_stream(surface_.get(), append, &bytes);
    }
    if (status == CAIRO_STATUS_SUCCESS) return bytes;
    return make_error(ErrorCode::kInternal, "PLOT_FAILED",
                      std::string("the image cannot be drawn: ") + cairo_status_to_string(status));
  }

 private:
  void curve_path(const std::vector<Point>& points) {
    for (const Point& p : points) {
      if (&p == points.data()) {
        cairo_move_to(context_.get(), p.x, p.y);
      } else {
        cairo_line_to(context_.get(), p.x, p.y);
      }
    }
  }
  void set_colour(Colour colour) {
    const auto share = [&](int shift) { return (colour >> shift & 0xff) / 255.0; };
    cairo_set_source_rgb(context_.get(), share(16), share(8), share(0));
  }
  void draw_path(double width, Colour colour) {
    set_colour(colour);
    cairo_set_line_width(context_.get(), width);
    cairo_stroke(context_.get());
  }
  void fill(Colour colour) {
    set_colour(colour);
    cairo_fill(context_.get());
  }

  Handle<cairo_surface_t, cairo_surface_destroy> surface_;
  Handle<cairo_t, cairo_destroy> context_;
};

}  // namespace

Result<std::string> draw_png(const std::vector<Chart>& charts) {
  const Point size = charts_size(charts);
  if (size.y * kScale > kHeightMax) {
    return make_error(ErrorCode::kResourceExhausted, "PLOT_TOO_LARGE",
                      "the image would have " + std::to_string(std::lround(size.y * kScale)) +
                          " pixel rows, expected at most " + std::to_string(kHeightMax) +
                          "; select fewer metrics");
  }
  PngDrawing drawing(static_cast<int>(std::lround(size.x * kScale)),
                     static_cast<int>(std::lround(size.y * kScale)));
  draw_charts(charts, drawing);
  return drawing.document();
}

}  // namespace trainyard::cli
