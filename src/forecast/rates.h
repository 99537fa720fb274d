// src/forecast/rates.h: measured times of a device, and a model that predicts the time of other
// work from them.
//
// A worker times the nodes of some networks on the device (src/calibration/calibrate.h). The times
// of each op are fitted as a sum with nonnegative factors a to i:
//
//   t = a serial + b flops + c bytes + d far_bytes + e memory_bytes
//         + f m n + g m k + h n k + i waste           (products only; waste: FLOPs that padding the
//                                                      width n to whole vectors adds)
//
// The fit minimizes relative errors, so that short and long times have equal weight. Near a
// measured size the sum is multiplied by the ratio of measured to fitted time there; this
// correction fades out with the distance. So more work takes longer, and a device that is twice as
// slow in every sample takes twice as long for all work.
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
  double seconds = 0;  // for one execution of the node alone
};

/// The measurements of a device for one number of threads and one precision.
struct DeviceRates {
  std::vector<RateSample> samples;
  double prepare_seconds = 0;  // mean time to prepare the kernel of a node
  double process_seconds = 0;  // from a worker's start to its assignment; 0: not measured
  double measure_seconds = 0;  // duration of the whole measurement
  double watts = 0;            // power of the device during the measurement; 0: unknown
};

/// Pseudo ops: the time of a step outside of its nodes, which depends on the bytes of its batch,
/// and the loader's time for a row, which depends on the count of numbers in it.
inline constexpr std::string_view kStepOp = "(step)";
inline constexpr std::string_view kImageRowOp = "(image row)", kTableRowOp = "(table row)",
                                  kTextRowOp = "(text row)";

std::string to_json_text(const DeviceRates& rates);
/// Reads the text that to_json_text() writes. Refusal: INVALID_ARGUMENT/RATES_INVALID, also for
/// numbers that are negative or not finite.
Result<DeviceRates> parse_rates(std::string_view json);

/// A predicted time and its parts.
struct NodeTime {
  double seconds = 0;
  // Parts of `seconds`: starting the node, and waiting for memory. The rest is computation.
  double launch = 0, memory = 0;
  double spread = 0;  // standard deviation of the logarithm of the time
};

/// Immutable, and thread-safe.
class RateModel {
 public:
  explicit RateModel(DeviceRates rates);

  /// Returns the predicted time of a node; nullopt if no node of its op was measured. A node that
  /// mainly moves bytes is then predicted from the measured nodes of other ops that do the same.
  std::optional<NodeTime> time(const NodeWorkload& node) const;
  const DeviceRates& rates() const { return rates_; }
  double flops_per_second() const { return flops_per_second_; }  // the highest of any sample
  double bytes_per_second() const { return bytes_per_second_; }  // highest memory bandwidth

  static constexpr size_t kTerms = 9;
  using Terms = std::array<double, kTerms>;

 private:
  struct Fit {
    Terms factors{};
    struct Rest {
      std::array<double, 4> at{};  // sizes_of() the sample
      double log_ratio = 0;        // logarithm of measured / fitted time
    };
    std::vector<Rest> rests;
  };
  static Fit fit(const std::vector<const RateSample*>& samples);
  static std::optional<NodeTime> time(const Fit& fit, const NodeWorkload& node);

  DeviceRates rates_;
  std::map<std::string, Fit, std::less<>> fits_;  // by op; "": all nodes that mainly move bytes
  double flops_per_second_ = 0, bytes_per_second_ = 0;
};

}  // namespace trainyard
