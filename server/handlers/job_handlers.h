// server/handlers/job_handlers.h: the unary methods of JobService.
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>
#include <string>

#include "server/config/paths.h"
#include "server/dispatch/dispatcher.h"
#include "server/files/disk_watch.h"
#include "server/handlers/unary.h"
#include "server/people/people.h"
#include "server/planning/job_planner.h"
#include "server/store/array.h"
#include "server/store/done.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/files.h"
#include "src/base/result.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

/// The parts of the daemon that the handlers use. They and this struct must outlive the service.
struct JobParts {
  const StatePaths& paths;
  const Clock& clock;
  Files& files;
  Store& store;
  const Dispatcher& dispatcher;
  JobPlanner& planner;
  const People& people;
  DiskWatch& disk;
  const std::atomic<bool>& draining;
};

/// Returns a job as the API shows it. While the disk is full, a running job says so: its metrics
/// and its state are not stored, so it seems to stand still.
Job with_disk_state(Job job, bool disk_is_full);

// Each of these registers methods of JobService. `planning` and `arrays` run the methods that plan,
// which may take seconds, or half a minute for an array. All handlers are thread-safe. A submit
// replies from the store's thread; the other calls may wait for a commit.
void add_job_rows(Methods& rows, const JobParts& parts, Executor& planning);
void add_array_rows(Methods& rows, const JobParts& parts, Executor& arrays);
/// Registers RetryJob, ForkJob and ListCheckpoints.
void add_fork_rows(Methods& rows, const JobParts& parts, Executor& planning);

}  // namespace trainyard::server
