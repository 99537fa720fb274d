// client/cli/forecast_view.h: forecasts for people.
#pragma once

#include <string>

#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::cli {

/// Of a step: "850 us", "12.3 ms", "1.2 s"; empty where it is unknown.
std::string step_text(double seconds);

/// A table of devices with the step's time, the time to the end with its range, what limits it and
/// the cost; below it why one is unknown. Empty without forecasts.
std::string render_forecasts(const v1::RunPlan& plan, bool colour);

/// Of Progress and of DeviceUse: "0.9x as fast as forecast, at 60% of the device's bound, held back
/// by data"; empty if nothing is known.
std::string pace_text(double forecast_share, double bound_share, const std::string& held_back_by);
/// "12 min (11 min to 14 min) to go, 0.9x as fast as forecast ...": of a running job. Empty if it
/// is unknown.
std::string remaining_text(const v1::Progress& progress);

/// What the forecasts of each device rest on, and how far they were off.
std::string render_device_forecasts(const v1::ListDevicesResponse& devices, bool colour);

}  // namespace trainyard::cli
