#include "client/cli/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <tuple>

#include "client/cli/chart_scale.h"

namespace trainyard::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMargin = 0.04;        // of the y axis, above and below the curves
constexpr double kStartShareMax = 0.5;  // of the y axis, for all but the first steps

/// Returns how many points of a curve belong to its first steps; none for a short curve.
size_t start_length(const Curve& curve) {
  constexpr size_t kShortest = 20, kStartShare = 50;
  if (curve.points.size() < kShortest) return 0;
  return std::max<size_t>(1, curve.points.size() / kStartShare);
}

bool is_shown(double y, bool logarithmic) { return std::isfinite(y) && (!logarithmic || y > 0); }

/// Returns the ticks fold * 10^p in [low, high] for each of `folds` and every `every`-th power p.
std::vector<double> decade_ticks(double low, double high, const std::vector<int>& folds,
                                 int every) {
  std::vector<double> ticks;
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= last; power += every) {
    for (const int fold : folds) {
      const double tick = fold * std::pow(10.0, power);
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
    }
  }
  return ticks;
}

}  // namespace

Curve smooth(Curve curve, double weight) {
  double average = 0, total = 0;
  for (auto& [x, y] : curve.points) {
    if (!std::isfinite(y)) continue;
    average = weight * average + (1 - weight) * y;
    total = weight * total + (1 - weight);
    y = average / total;
  }
  return curve;
}

std::vector<double> axis_ticks(double low, double high, int count_max, bool logarithmic) {
  if (logarithmic) {
    std::vector<double> ticks = decade_ticks(low, high, {1, 2, 5}, 1);
    for (int every = 1; static_cast<int>(ticks.size()) > count_max; ++every) {
      ticks = decade_ticks(low, high, {1}, every);
    }
    // the range is less than a decade: use ticks as on a linear axis
    if (ticks.size() >= 3) return ticks;
  }
  const double width = (high - low) / count_max;
  double step = std::pow(10.0, std::floor(std::log10(width)));
  for (const double fold : {1.0, 2.0, 5.0, 10.0}) {
    if (step * fold >= width * (1 - 1e-9)) {
      step *= fold;
      break;
    }
  }
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; ++k) {
    ticks.push_back(k * step);
  }
  return ticks;
}

std::string tick_text(double value) {
  char text[32];
  const double size = std::abs(value);
  if (size >= 1e4 && size < 1e6) {
    std::snprintf(text, sizeof text, "%.4gk", value / 1e3);
  } else if (size >= 1e6 && size < 1e9) {
    std::snprintf(text, sizeof text, "%.4gM", value / 1e6);
  } else {
    std::snprintf(text, sizeof text, "%.4g", size < 1e-12 ? 0.0 : value);
  }
  return text;
}

Scale::Scale(double low, double high, bool logarithmic)
    : low_(low), high_(high), logarithmic_(logarithmic) {}

std::optional<double> Scale::at(double value) const {
  if (!is_shown(value, logarithmic_)) return std::nullopt;
  if (logarithmic_) return (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_));
  return (value - low_) / (high_ - low_);
}

ChartScales scales_of(const Chart& chart) {
  double x_low = kInfinity, x_high = -kInfinity, y_low = kInfinity, y_high = -kInfinity;
  double later_high = -kInfinity;  // without the first steps
  for (const Curve& curve : chart.curves) {
    const size_t first = start_length(curve);
    for (size_t i = 0; i < curve.points.size(); ++i) {
      const auto& [x, y] = curve.points[i];
      if (!is_shown(y, chart.logarithmic)) continue;
      x_low = std::min(x_low, x), x_high = std::max(x_high, x);
      y_low = std::min(y_low, y), y_high = std::max(y_high, y);
      if (i >= first) later_high = std::max(later_high, y);
    }
  }
  if (x_low > x_high) x_low = 0, x_high = 1, y_low = 1, y_high = 2;  // no value can be shown
  if (chart.steps) std::tie(x_low, x_high) = *chart.steps;
  if (x_low == x_high) x_low -= 1, x_high += 1;
  const bool cuts = !chart.logarithmic && later_high > y_low &&
                    later_high - y_low < kStartShareMax * (y_high - y_low);
  if (cuts) y_high = later_high;
  if (y_low == y_high) {
    const double room = y_low == 0 ? 1 : std::abs(y_low) / 2;
    y_low -= room, y_high += room;
  } else if (chart.logarithmic) {
    const double room = std::pow(y_high / y_low, kMargin);
    y_low /= room, y_high *= room;
  } else {
    const double room = kMargin * (y_high - y_low);
    y_low -= room, y_high += room;
  }
  return {Scale(x_low, x_high, false), Scale(y_low, y_high, chart.logarithmic), cuts};
}

std::vector<size_t> drawing_order(const Chart& chart) {
  std::vector<size_t> order(chart.curves.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return chart.curves[i].stroke; });
  return order;
}

std::vector<std::vector<std::pair<double, double>>> curve_pieces(const Curve& curve,
                                                                 const ChartScales& scales,
                                                                 int columns) {
  std::vector<std::vector<std::pair<double, double>>> pieces;
  // `column`: the points of `piece` in the current column
  std::vector<std::pair<double, double>> piece, column;
  int column_at = -1;
  const auto close_column = [&] {
    if (column.size() > 2) {
      const auto [low, high] =
          std::minmax_element(column.begin(), column.end(),
                              [](const auto& a, const auto& b) { return a.second < b.second; });
      std::vector<std::pair<double, double>> both = {*low, *high};
      if (high < low) std::swap(both[0], both[1]);
      column = both;
    }
    piece.insert(piece.end(), column.begin(), column.end());
    column.clear();
  };
  const auto close_piece = [&] {
    close_column();
    if (!piece.empty()) pieces.push_back(std::move(piece));
    piece.clear();
    column_at = -1;
  };
  if (curve.level) {
    const auto y = curve.points.empty() ? std::nullopt : scales.y.at(curve.points.back().second);
    if (y) pieces = {{{0, *y}, {1, *y}}};
    return pieces;
  }
  for (const auto& [x, y] : curve.points) {
    const auto px = scales.x.at(x);
    auto py = scales.y.at(y);
    if (!px || !py) {
      close_piece();
      continue;
    }
    py = std::min(*py, 1.0);  // of the first steps, if they are cut off
    const int at = static_cast<int>(*px * columns);
    if (at != column_at) close_column();
    column_at = at;
    column.emplace_back(*px, *py);
  }
  close_piece();
  return pieces;
}

}  // namespace trainyard::cli
