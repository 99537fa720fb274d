// src/forecast/forecast.h: how long a job will take on a device that has it to itself. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "src/forecast/rates.h"
#include "src/forecast/step_work.h"

namespace trainyard {

/// A time in seconds, and the range in which nine of ten outcomes are expected.
struct TimeRange {
  double seconds = 0, low = 0, high = 0;

  TimeRange& operator+=(const TimeRange& other);
};
TimeRange operator*(TimeRange range, double factor);

enum class Limit : uint8_t { kUnknown, kCompute, kMemory, kLaunches, kData, kExchanges };
/// "compute", "memory bandwidth", "launches", "data", "exchanges"; "" of kUnknown.
std::string_view name_of(Limit limit);

/// The least time that a device could take: of each node its FLOPs at the fastest measured rate, or
/// its bytes from and to memory at the measured bandwidth, whichever is more.
struct StepBound {
  double seconds = 0;          // 0: a rate is unknown
  Limit by = Limit::kUnknown;  // kCompute or kMemory: what most of it is
};
StepBound bound_step(const StepWork& work, const RateModel& rates);

/// The link between the GPUs of a job. Nobody has measured it: these are what cards have, from PCI
/// Express 3.0 beside other traffic to NVLink, and the middle is PCI Express 4.0 with 16 lanes as
/// NCCL uses it.
struct LinkRates {
  double bytes_per_second = 20e9, bytes_per_second_least = 8e9, bytes_per_second_most = 300e9;
  double seconds_per_exchange = 30e-6;
};
inline constexpr LinkRates kAssumedLink;
/// The network between the nodes of a job, of which each sends so much. That is assumed as well:
/// for GPUs what NCCL gets from 10 to 400 Gbit/s, for CPUs what a process sends through TLS
/// (docs/decisions/0105) over 1 to 10 Gbit/s.
inline constexpr LinkRates kAssumedGpuNetwork{.bytes_per_second = 5e9,
                                              .bytes_per_second_least = 1.25e9,
                                              .bytes_per_second_most = 50e9,
                                              .seconds_per_exchange = 100e-6};
inline constexpr LinkRates kAssumedCpuNetwork{.bytes_per_second = 0.3e9,
                                              .bytes_per_second_least = 0.1e9,
                                              .bytes_per_second_most = 1.2e9,
                                              .seconds_per_exchange = 200e-6};
/// "the link between its GPUs is not measured: 20 GB/s are assumed, 8 to 300 in the ranges", or
/// "the network between its nodes ..."; empty where nothing is sent over one.
std::string assumed_link(const StepWork& work);

struct StepForecast {
  TimeRange time;
  Limit limited_by = Limit::kUnknown;
};
/// Of several GPUs or nodes with what they send each other, by an assumed link. The likely time
/// hides of it what half of the computing takes (the backward pass is more than that), the upper
/// end of the range nothing, the lower one what all of the computing takes. Ranks on one CPU send
/// nothing: they read each other's memory. The error says of which op no rate is known:
/// NOT_FOUND/RATE_UNKNOWN.
Result<StepForecast> forecast_step(const StepWork& work, const RateModel& rates);

/// How the loader makes a row.
struct RowWork {
  std::string kind;    // kImageRowOp and so on; empty: it is not known how long that takes
  double numbers = 0;  // of a row
};

/// Everything whose time makes up that of a job.
struct RunWork {
  StepWork step;
  StepWork evaluation;  // of one batch
  RowWork row;
  int64_t batch_size = 0;
  int64_t steps = 0;
  int64_t evaluations = 0, evaluation_batches = 0;  // batches of each
  int64_t last_evaluation_batches = 0;              // of the finished model on other rows
  int64_t checkpoints = 0;      // that the recipe asks for; those by time cost 1 % at most
  double checkpoint_bytes = 0;  // copied while the steps wait
  int64_t nodes = 0;            // whose kernels are prepared first

  /// Its ranks are on several nodes of a cluster: before anything is forecast by it.
  void spread_over_nodes();
};

/// What finished jobs of the same step took on the device, or the steps of the job itself.
struct MeasuredSteps {
  TimeRange step;
  int64_t count = 0;  // of jobs, or of steps
};

struct RunForecast {
  TimeRange step, total;
  StepBound bound;  // of the step
  Limit limited_by = Limit::kUnknown;
  double rows_per_second_needed = 0, rows_per_second_possible = 0;  // 0: unknown
  double start_seconds = 0;  // of the total: before the first step
};
/// `measured` takes the place of what the rates say about a step. NOT_FOUND/RATE_UNKNOWN.
Result<RunForecast> forecast_run(const RunWork& work, const RateModel& rates,
                                 const std::optional<MeasuredSteps>& measured = std::nullopt);

}  // namespace trainyard
