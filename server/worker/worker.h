// server/worker/worker.h: one task from assignment to outcome. A worker computes one thing and
// ends: it trains a job's attempt, ingests a dataset (untrusted bytes), reads an uploaded weights
// file's header. One that serves a model goes on until it is told to stop.
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
/// between the calls to a model; ingest ends with the process. `uplink`: of a training worker on
/// another host. `peers`: of one that trains together with those of other nodes.
v1::Outcome run_assignment(const v1::Assignment& assignment, ReportStream& stream,
                           std::stop_token stop, Uplink* uplink = nullptr,
                           const std::shared_ptr<Peers>& peers = {}) noexcept;

/// Of the backend of the task's device.
Result<DeviceRates> measure_rates(Backend& backend, const v1::CalibrateTask& task,
                                  const std::stop_token& stop);

}  // namespace trainyard
