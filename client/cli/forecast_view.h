// client/cli/forecast_view.h: shows forecasts to people.
#pragma once

#include <string>
#include <string_view>

#include "trainyard/v1/job_service.pb.h"
#include "trainyard/v1/system_service.pb.h"

namespace trainyard::cli {

/// Returns the time of a step: "850 us", "12.3 ms", "1.2 s"; empty if unknown.
std::string step_text(double seconds);

/// Returns a table of devices with the step time, the time to the end and its range, the limiting
/// factor and the cost; below it the reasons for unknown forecasts. Empty without forecasts.
std::string render_forecasts(const v1::RunPlan& plan, bool colour);

/// Describes the speed of a running job: "0.9x as fast as forecast, at 60% of the device's bound,
/// held back by data". Empty if nothing is known. The arguments are fields of v1::Progress and
/// v1::DeviceUse.
std::string pace_text(double forecast_share, double bound_share, const std::string& held_back_by);
/// Describes the remaining time of a running job: "12 min (11 min to 14 min), 0.9x as fast as
/// forecast ...". Empty if the time is unknown.
std::string remaining_text(const v1::Progress& progress);

/// Returns the measured rates from which each device's forecasts are computed, and how accurate
/// past forecasts were. Jobs of projects other than `parent` have their project in their name.
std::string render_device_forecasts(const v1::ListDevicesResponse& devices, bool colour,
                                    std::string_view parent);

}  // namespace trainyard::cli
