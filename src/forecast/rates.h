// src/forecast/rates.h: what a device takes for work of each kind, and what that says about other
// work.
//
// A worker times the nodes of some networks on the device (src/calibration/calibrate.h). By op, the
// times are fitted as a sum of what a node may be limited by, no summand negative:
//
//   t = a serial + b flops + c bytes + d far_bytes + e memory_bytes
//         + f m n + g m k + h n k + i waste           (products; waste: of widths that fill no
//         vector)
//
// each time weighted alike, whatever its length. What the sum leaves over at the measured sizes is
// a factor that fades out with the distance from them. More work thus takes longer, and a device
// that is twice as slow in everything takes twice as long for everything.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/forecast/step_work.h"

namespace trainyard {

struct RateSample {
  NodeWorkload node;
  double seconds = 0;  // of one run by itself
};

/// What was measured on a device with a number of threads in a precision.
struct DeviceRates {
  std::vector<RateSample> samples;
  double prepare_seconds = 0;  // to prepare the kernel of a node: the mean
  double process_seconds = 0;  // from a worker's start to its assignment; 0: not measured
  double measure_seconds = 0;  // that measuring took in all
  double watts = 0;            // that the device drew meanwhile; 0: not known
};

/// Pseudo ops: what a step takes besides its nodes, by the bytes of its batch; a row that the
/// loader makes, by its numbers.
inline constexpr std::string_view kStepOp = "(step)";
inline constexpr std::string_view kImageRowOp = "(image row)", kTableRowOp = "(table row)",
                                  kTextRowOp = "(text row)";

std::string to_json_text(const DeviceRates& rates);
/// INVALID_ARGUMENT/RATES_INVALID: numbers that are negative or not finite are refused, too.
Result<DeviceRates> parse_rates(std::string_view json);

/// A time and what it is made of.
struct NodeTime {
  double seconds = 0;
  double launch = 0,
         memory = 0;  // of it: beginning the node; waiting for memory; computing is the rest
  double spread = 0;  // standard deviation of the logarithm
};

/// Immutable, and thread-safe.
class RateModel {
 public:
  explicit RateModel(DeviceRates rates);

  /// Nothing where no node of the op was measured, unless all that it does is moving its bytes:
  /// then others that do the same stand for it.
  std::optional<NodeTime> time(const NodeWorkload& node) const;
  const DeviceRates& rates() const { return rates_; }
  double flops_per_second() const { return flops_per_second_; }  // of the fastest sample
  double bytes_per_second() const { return bytes_per_second_; }  // of one that streams from memory

  static constexpr size_t kTerms = 9;
  using Terms = std::array<double, kTerms>;

 private:
  struct Fit {
    Terms factors{};
    struct Rest {
      std::array<double, 4> at{};  // logarithms of the sizes
      double log_ratio = 0;        // of measured over fitted
    };
    std::vector<Rest> rests;
  };
  static Fit fit(const std::vector<const RateSample*>& samples);
  static std::optional<NodeTime> time(const Fit& fit, const NodeWorkload& node);

  DeviceRates rates_;
  std::map<std::string, Fit, std::less<>> fits_;  // by op; "" is all that move bytes
  double flops_per_second_ = 0, bytes_per_second_ = 0;
};

}  // namespace trainyard
