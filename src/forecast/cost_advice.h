// src/forecast/cost_advice.h: whether a job should run on the CPU or on a GPU, by the time that it
// takes on each and by what an hour of each costs. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/forecast/forecast.h"

namespace trainyard {

/// The price of an hour of a GPU, in hours of the CPU. Without configured prices two to three are
/// assumed.
struct GpuPrice {
  double low = 2, high = 3;
};

enum class CostVerdict : uint8_t {
  kCpu,          // the CPU is faster and cheaper, whichever values of the ranges are true
  kProbablyCpu,  // by the likely values the CPU is faster and cheaper
  kDepends,      // by the likely values the GPU is faster and the CPU is cheaper
  kProbablyGpu,  // by the likely values the GPU is faster and cheaper
  kGpu,          // the GPU is faster and cheaper, whichever values of the ranges are true
};
/// "CPU", "probably CPU", "GPU faster, CPU cheaper", "probably GPU", "GPU".
std::string_view name_of(CostVerdict verdict);

/// A ratio of two uncertain numbers, with its 90 % interval.
struct RatioRange {
  double likely = 0, low = 0, high = 0;
};

struct CostAdvice {
  CostVerdict verdict = CostVerdict::kDepends;
  RatioRange speedup;  // how many times faster the GPU is
  RatioRange cost;     // what the job costs on the GPU, as a share of what it costs on the CPU
};

/// `cpu` and `gpu` are the times of the whole job; all of their values must be positive.
CostAdvice advise_by_cost(const TimeRange& cpu, const TimeRange& gpu, const GpuPrice& price);

/// Returns a range without needless digits: "3 to 20", "0.15 to 0.9"; "8" if both ends are written
/// alike.
std::string ratio_range_text(double low, double high);

}  // namespace trainyard
