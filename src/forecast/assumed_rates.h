// src/forecast/assumed_rates.h: predicts how long a job takes on a GPU on which nothing was
// measured, from its published peak rates. Kernels reach a share of a peak that depends on the GPU,
// the library's algorithm and the size of the problem, so the ranges are wide: they cover the
// shares that are assumed here. Pure functions.
#pragma once

#include "src/forecast/forecast.h"

namespace trainyard {

/// Published rates of one GPU, per second.
struct AssumedRates {
  double multiprocessors = 1;
  double f32_flops = 0;
  double product_flops = 0;    // products and convolutions in the job's precision
  double attention_flops = 0;  // attention in the job's precision
  double memory_bytes = 0;     // bytes read from and written to its memory
};

/// Predicts the time of a step. All rates must be positive.
StepForecast forecast_step(const StepWork& work, const AssumedRates& rates);

/// Predicts the time of a job on one GPU. `rows_per_second_possible` is the loader's rate on the
/// host's CPU; 0: unknown, so that the loader is assumed not to limit the job. RunForecast::bound
/// stays unknown.
RunForecast forecast_run(const RunWork& work, const AssumedRates& rates,
                         double rows_per_second_possible = 0);

}  // namespace trainyard
