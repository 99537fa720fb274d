// src/forecast/forecast.h: predicts how long a job takes on a device that runs nothing else. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/forecast/rates.h"
#include "src/forecast/step_work.h"

namespace trainyard {

/// A time in seconds with its 90 % prediction interval, from `low` to `high`.
struct TimeRange {
  double seconds = 0, low = 0, high = 0;

  TimeRange& operator+=(const TimeRange& other);
};
TimeRange operator*(TimeRange range, double factor);

enum class Limit : uint8_t { kUnknown, kCompute, kMemory, kLaunches, kData, kExchanges };
/// Returns one of "compute", "memory bandwidth", "launches", "data", "exchanges"; "" for kUnknown.
std::string_view name_of(Limit limit);

/// A lower bound for the time of a step: the sum over its nodes of the time for the node's FLOPs at
/// the fastest measured rate or for its bytes from and to memory at the measured bandwidth,
/// whichever is longer.
struct StepBound {
  double seconds = 0;          // 0 if a rate is unknown
  Limit by = Limit::kUnknown;  // kCompute or kMemory, whichever is the larger part of `seconds`
};
StepBound bound_step(const StepWork& work, const RateModel& rates);

/// The link between the GPUs of a job. The rates are assumed, not measured. The range is that of
/// common cards, from PCI Express 3.0 shared with other traffic to NVLink; the middle is what NCCL
/// reaches on PCI Express 4.0 with 16 lanes.
struct LinkRates {
  double bytes_per_second = 20e9, bytes_per_second_least = 8e9, bytes_per_second_most = 300e9;
  double seconds_per_exchange = 30e-6;
};
inline constexpr LinkRates kAssumedLink;
/// The network between the nodes of a job; the rates are those at which each node sends. They are
/// assumed, too: for GPUs what NCCL reaches on networks of 10 to 400 Gbit/s, for CPUs what a
/// process sends through TLS (docs/decisions/jobs-over-several-nodes.md) on networks of 1 to 10
/// Gbit/s.
inline constexpr LinkRates kAssumedGpuNetwork{.bytes_per_second = 5e9,
                                              .bytes_per_second_least = 1.25e9,
                                              .bytes_per_second_most = 50e9,
                                              .seconds_per_exchange = 100e-6};
inline constexpr LinkRates kAssumedCpuNetwork{.bytes_per_second = 0.3e9,
                                              .bytes_per_second_least = 0.1e9,
                                              .bytes_per_second_most = 1.2e9,
                                              .seconds_per_exchange = 200e-6};
/// Returns "the link between its GPUs is not measured: 20 GB/s are assumed, 8 to 300 in the
/// ranges", or "the network between its nodes ..."; empty if the step sends nothing over a link or
/// network.
std::string assumed_link(const StepWork& work);

struct StepForecast {
  TimeRange time;
  Limit limited_by = Limit::kUnknown;
};
/// Predicts the time of a step. For several GPUs or nodes it includes their exchanges over the
/// assumed link, as far as computation does not hide them: the likely time assumes that half of the
/// computation overlaps with exchanges (the backward pass is more than half), the upper end of the
/// range that nothing does, the lower end that all of it does. Ranks on one CPU exchange nothing,
/// since they read each other's memory. The error NOT_FOUND/RATE_UNKNOWN names an op without a
/// measured rate.
Result<StepForecast> forecast_step(const StepWork& work, const RateModel& rates);

/// The loader's work for a row.
struct RowWork {
  std::string kind;    // kImageRowOp and so on; empty if the work's time is unknown
  double numbers = 0;  // the count of numbers in a row
};

/// All work whose time adds up to that of a job.
struct RunWork {
  StepWork step;
  StepWork evaluation;  // work for one batch of an evaluation
  RowWork row;
  int64_t batch_size = 0;
  int64_t steps = 0;
  int64_t evaluations = 0, evaluation_batches = 0;  // `evaluation_batches` in each evaluation
  int64_t last_evaluation_batches = 0;              // for the finished model, on the test rows
  // The number of checkpoints at steps that the recipe names. It is 0 if checkpoints are written at
  // intervals of time, which costs 1 % at most.
  int64_t checkpoints = 0;
  double checkpoint_bytes = 0;  // bytes per checkpoint, which are copied while the steps wait
  int64_t nodes = 0;            // graph nodes whose kernels are prepared before the first step

  /// Marks the job's ranks as being on several nodes of a cluster. Must be called before any
  /// forecast.
  void spread_over_nodes();
};

/// Measured times of the step on the device: from finished jobs with the same step, or from earlier
/// steps of the job itself.
struct MeasuredSteps {
  TimeRange step;
  int64_t count = 0;  // how many jobs or steps were measured
};

struct RunForecast {
  TimeRange step, total;
  StepBound bound;  // lower bound for `step`
  Limit limited_by = Limit::kUnknown;
  double rows_per_second_needed = 0, rows_per_second_possible = 0;  // 0: unknown
  double start_seconds = 0;  // the part of `total` before the first step
};
/// Returns the time of a whole job from the times of a step and of a batch that is evaluated. While
/// a checkpoint is copied, which takes `copy_seconds`, the steps wait. `start` is the time before
/// the first step.
TimeRange total_time(const RunWork& work, const TimeRange& step, const TimeRange& evaluation,
                     double copy_seconds, const TimeRange& start);
/// `measured` replaces the time of a step that the rates predict. Error: NOT_FOUND/RATE_UNKNOWN.
Result<RunForecast> forecast_run(const RunWork& work, const RateModel& rates,
                                 const std::optional<MeasuredSteps>& measured = std::nullopt);

}  // namespace trainyard
