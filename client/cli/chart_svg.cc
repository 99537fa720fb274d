// Draws charts as SVG 1.1 without scripts, style sheets or embedded fonts, so that browsers,
// documents and converters show the same.
#include <cstdio>

#include "client/cli/chart_drawing.h"
#include "client/cli/terminal.h"

namespace trainyard::cli {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string name_of(Colour colour) {
  char text[16];
  std::snprintf(text, sizeof text, "#%06x", colour);
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

const char* name_of(Anchor anchor) {
  return anchor == Anchor::kStart ? "start" : anchor == Anchor::kMiddle ? "middle" : "end";
}

class SvgDrawing final : public Drawing {
 public:
  void line(Point from, Point to, Colour colour) override {
    body_ += "<line x1=\"" + number(from.x) + "\" y1=\"" + number(from.y) + "\" x2=\"" +
             number(to.x) + "\" y2=\"" + number(to.y) + "\" stroke=\"" + name_of(colour) + "\"/>\n";
  }
  void text(Point at, Anchor anchor, const TextStyle& style, std::string_view text) override {
    body_ += "<text x=\"" + number(at.x) + "\" y=\"" + number(at.y) + "\" text-anchor=\"" +
             name_of(anchor) + "\" font-size=\"" + number(style.size) + "\"" +
             (style.bold ? " font-weight=\"bold\"" : "") + " fill=\"" + name_of(style.colour) +
             "\">" + escaped(text) + "</text>\n";
  }
  void curve(const std::vector<std::vector<Point>>& pieces, Colour colour, Stroke stroke) override {
    std::string path;
    for (const std::vector<Point>& piece : pieces) {
      for (const Point& p : piece) {
        path += (&p == piece.data() ? "M" : "L") + number(p.x) + " " + number(p.y);
      }
    }
    std::string dashes;
    if (stroke != Stroke::kSolid) {
      const auto [line, gap] = dashes_of(stroke);
      dashes = "\" stroke-dasharray=\"" + number(line) + " " + number(gap);
    }
    body_ += "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + name_of(colour) +
             "\" stroke-width=\"" + number(kCurveWidth) + dashes +
             "\" stroke-linejoin=\"round\"/>\n";
  }
  void dot(Point centre, double radius, Colour colour) override {
    body_ += "<circle cx=\"" + number(centre.x) + "\" cy=\"" + number(centre.y) + "\" r=\"" +
             number(radius) + "\" fill=\"" + name_of(colour) + "\"/>\n";
  }

  std::string document(Point size) const {
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(size.x) + "\" height=\"" +
           number(size.y) + "\" viewBox=\"0 0 " + number(size.x) + " " + number(size.y) +
           "\" font-family=\"sans-serif\">\n" +
           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" + body_ + "</svg>\n";
  }

 private:
  std::string body_;
};

}  // namespace

std::string draw_svg(const std::vector<Chart>& charts) {
  SvgDrawing drawing;
  draw_charts(charts, drawing);
  return drawing.document(charts_size(charts));
}

}  // namespace trainyard::cli
