// server/handlers/model_handlers.h: the unary methods of ModelService.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "server/config/paths.h"
#include "server/files/disk_watch.h"
#include "server/files/uploads.h"
#include "server/handlers/unary.h"
#include "server/people/people.h"
#include "server/processes/one_shot_tasks.h"
#include "server/serving/call_quotas.h"
#include "server/serving/predict.h"
#include "server/store/done.h"
#include "server/store/store.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "trainyard/v1/model_service.pb.h"

namespace trainyard::server {

/// The parts of the daemon that the handlers use. They and this struct must outlive the service.
struct ModelParts {
  const StatePaths& paths;
  Files& files;
  Store& store;
  Uploads& uploads;
  PredictRunner& predict;
  OneShotTasks& one_shot_tasks;
  DiskWatch& disk;
  People& people;
  CallQuotas& call_quotas;
  const std::atomic<bool>& draining;
};

/// Registers the unary methods of ModelService. The handlers are thread-safe.
void add_model_rows(Methods& rows, const ModelParts& parts);

/// Error: NOT_FOUND/MODEL_NOT_FOUND; INVALID_ARGUMENT for a malformed name.
Result<Model> find_model(const ModelParts& parts, const std::string& name);
/// Like PredictRunner::generate(), after checks of the request. An error is returned immediately,
/// and `done` is then not called.
Result<CallNumber> generate(const ModelParts& parts, const v1::GenerateRequest& request,
                            const Principal& caller,
                            std::function<void(const v1::GenerateResponse&)> on_text,
                            Done<void> done);

}  // namespace trainyard::server
