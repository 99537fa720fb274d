// server/store/remaining.h: what a running job still takes.
#pragma once

#include <cstdint>
#include <string>

#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

/// In seconds; 0: unknown.
struct Remaining {
  double seconds = 0, low = 0, high = 0;
  double forecast_share = 0;  // v1::Progress.forecast_share
  double bound_share = 0;     // v1::Progress.bound_share
  std::string held_back_by;   // v1::Progress.held_back_by
};

/// By its own steps once there are kOutcomeStepsMin, by its forecast until then. `beside`: how many
/// other jobs are on its device, which are what holds it back if it is clearly slower than
/// forecast.
Remaining remaining_of(const v1::RunPlan& plan, const std::string& device,
                       const v1::Progress& progress, int32_t beside = 0);

}  // namespace trainyard::server
