// server/worker/worker.h: runs one task from assignment to outcome. A worker runs one task and
// ends: it trains a job's attempt, ingests a dataset (untrusted bytes), or reads the header of an
// uploaded weights file, for example. A worker that serves a model runs until a stop is requested.
#pragma once

#include <memory>
#include <stop_token>

#include "server/worker/report_stream.h"
#include "server/worker/uplink.h"
#include "src/forecast/rates.h"
#include "src/runtime/backend.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard {

/// Runs the assignment. Never throws (outcome.h). `stop` is checked once per training step, and
/// between the calls to a model; ingest ignores it and ends with the process. `uplink` is null
/// unless this is a remote training worker. `peers` is null unless it trains together with workers
/// of other nodes.
v1::Outcome run_assignment(const v1::Assignment& assignment, ReportStream& stream,
                           std::stop_token stop, Uplink* uplink = nullptr,
                           const std::shared_ptr<Peers>& peers = {}) noexcept;

/// Measures the rates of `backend`, which is that of the task's device.
Result<DeviceRates> measure_rates(Backend& backend, const v1::CalibrateTask& task,
                                  const std::stop_token& stop);

}  // namespace trainyard
