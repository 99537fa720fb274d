// server/store/remaining.h: estimates the remaining time of a running job.
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

/// Times are in seconds; 0: unknown.
struct Remaining {
  double seconds = 0, low = 0, high = 0;
  double forecast_share = 0;  // v1::Progress.forecast_share
  double bound_share = 0;     // v1::Progress.bound_share
  std::string held_back_by;   // v1::Progress.held_back_by
};

/// Estimates from the job's measured steps once there are kOutcomeStepsMin, and from its forecast
/// before that. `beside` is the number of other jobs on its device; if the job is clearly slower
/// than forecast, they are reported as the cause.
Remaining remaining_of(const v1::RunPlan& plan, const std::string& device,
                       const v1::Progress& progress, int32_t beside = 0);

}  // namespace trainyard::server
