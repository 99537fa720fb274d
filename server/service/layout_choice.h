// server/service/layout_choice.h: the layouts of a job in the memory of this server's devices, with
// the times of its steps where these are known.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "proto/convert/spec.h"
#include "server/inventory/inventory.h"
#include "server/service/memory_fit.h"
#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/plan/device_traits.h"
#include "src/planning/layouts.h"

namespace trainyard::server {

/// A step of one job on a device, by measured rates alone (Forecaster::step_time,
/// ClusterRates::step_time).
using StepTimeOn = std::function<Result<TimeRange>(const Device& device, const RunWork& work)>;

/// A job, and where it is to fit.
struct LayoutQuestion {
  const v1::JobSpec& spec;  // with its precision and threads
  const EngineSpec& engine;
  const DatasetSchema& schema;
  const Devices& devices;
  const MemoryRoom& room;
  DeviceTraits traits;  // that it is planned with
  StepTimeOn step_time;
  bool all = false;  // else no more than a choice takes
};
struct FoundLayouts {
  Layouts layouts;
  std::string basis;  // JobPlan.layouts_basis
};
/// CANCELLED/STOPPED soon after `stop` is requested.
Result<FoundLayouts> find_layouts(const LayoutQuestion& question, const std::stop_token& stop);

/// Writes the chosen layout into both forms of the spec of a job that does not fit as it is
/// written. `as_written` is its plan. Nothing if no layout fits. What it costs is for the caller to
/// add.
std::optional<v1::FitChoice> choose_fit(v1::JobSpec& spec, EngineSpec& engine,
                                        const Layouts& layouts, const v1::RunPlan& as_written,
                                        const MemoryRoom& room, DeviceTraits traits);

/// All rows, for who asked for them.
void set_layouts(const FoundLayouts& found, const MemoryRoom& room, v1::JobPlan& plan);
/// What no row has, once it was measured for the one that is planned. Nothing without rows.
void add_workspace(int64_t workspace_bytes, v1::JobPlan& plan);

}  // namespace trainyard::server
