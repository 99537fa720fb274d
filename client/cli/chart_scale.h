// client/cli/chart_scale.h: maps values to positions on a chart.
#pragma once

#include <optional>

#include "client/cli/chart.h"

namespace trainyard::cli {

class Scale {
 public:
  Scale(double low, double high, bool logarithmic);
  /// Returns the position of a value, in [0, 1]; nothing for values that cannot be shown.
  std::optional<double> at(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }
  bool logarithmic() const { return logarithmic_; }

 private:
  double low_, high_;
  bool logarithmic_;
};

struct ChartScales {
  Scale x, y;
  bool cuts_start = false;  // values of the first steps are above the chart
};
/// Returns the ranges of all values that can be shown, with a margin on the y axis. A range is
/// never empty. If the first steps alone would take more than half of the y axis, as the loss of
/// random weights may, they are cut off.
ChartScales scales_of(const Chart& chart);

/// Follows the title of a chart that cuts off the first steps.
inline constexpr const char* kCutNote = " (the first steps are above)";

/// Returns the indices of the curves in drawing order: solid ones first, because they are noisy and
/// others must stay visible.
std::vector<size_t> drawing_order(const Chart& chart);

/// Returns a curve scaled to [0, 1] x [0, 1] and split at its gaps, with at most two points (the
/// lowest and the highest) for each of `columns` columns along the x axis.
std::vector<std::vector<std::pair<double, double>>> curve_pieces(const Curve& curve,
                                                                 const ChartScales& scales,
                                                                 int columns);

}  // namespace trainyard::cli
