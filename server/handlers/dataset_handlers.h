// server/handlers/dataset_handlers.h: the unary methods of DatasetService.
#pragma once

#include <atomic>

#include "server/config/config.h"
#include "server/config/paths.h"
#include "server/files/disk_watch.h"
#include "server/files/uploads.h"
#include "server/handlers/unary.h"
#include "server/people/people.h"
#include "server/processes/executor.h"
#include "server/processes/ingest.h"
#include "server/processes/one_shot_tasks.h"
#include "server/store/done.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard::server {

v1::Upload to_proto(const Upload& upload);

/// The parts of the daemon that the handlers use. They and this struct must outlive the service.
struct DatasetParts {
  const Config& config;
  const StatePaths& paths;
  const Clock& clock;
  Files& files;
  Store& store;
  Uploads& uploads;
  IngestRunner& ingest;
  OneShotTasks& one_shot_tasks;
  DiskWatch& disk;
  People& people;
  Executor& executor;  // runs the rest of the call after a worker has read the server's own files
  const std::atomic<bool>& draining;
};

/// Registers the unary methods of DatasetService. The handlers are thread-safe.
void add_dataset_rows(Methods& rows, const DatasetParts& parts);

}  // namespace trainyard::server
