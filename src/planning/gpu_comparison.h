// src/planning/gpu_comparison.h: compares a job on the CPU with the same job on GPUs that nobody
// needs to have: whether it fits there, how long it would take, and which is cheaper. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/forecast/assumed_rates.h"
#include "src/forecast/cost_advice.h"
#include "src/forecast/forecast.h"
#include "src/job/run_plan.h"
#include "src/planning/known_gpus.h"
#include "src/planning/planner_input.h"

namespace trainyard {

/// The memory that a process is assumed to need on a GPU in addition to its job's plan.
inline constexpr int64_t kAssumedOverheadBytes = int64_t{1} << 30;

/// The job's forecast on the CPU.
struct CpuForecast {
  TimeRange total;                      // 0: unknown
  std::string basis;                    // its source as a clause, or "unknown: " and the reason
  double rows_per_second_possible = 0;  // the loader's rate; 0: unknown
};

struct ComparedGpu {
  const KnownGpu* gpu = nullptr;
  int64_t bytes_needed = 0;  // at least: the kernels' workspace is not known
  // Why the job cannot run there, as a clause; empty if it can.
  std::string obstacle;
  RunForecast forecast;  // meaningless with an obstacle
  // Absent with an obstacle, and if the CPU's time is unknown.
  std::optional<CostAdvice> advice;

  /// Returns the advice in a sentence.
  std::string text(const CpuForecast& cpu) const;
};

/// Returns the GPU's rates for a job of this precision. Where its tensor cores lack the precision,
/// products are computed in F32.
AssumedRates assumed_rates_of(const KnownGpu& gpu, Precision precision);

/// Refuses a job that is not for one device of this machine:
/// INVALID_ARGUMENT/GPU_COMPARISON_INVALID of `field`.
Status check_comparable(const JobToPlan& job, bool is_for_cluster, const std::string& field);

/// Compares a job whose plan for a GPU is `on_gpu`.
std::vector<ComparedGpu> compare_gpus(std::span<const KnownGpu* const> gpus, const RunPlan& on_gpu,
                                      const CpuForecast& cpu, const GpuPrice& price);

/// Returns sentences on what the comparison is based on.
std::string comparison_basis(const CpuForecast& cpu, const GpuPrice& price, bool price_is_assumed);

}  // namespace trainyard
