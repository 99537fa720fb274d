// server/processes/one_shot_runner.h: runs one-shot tasks: a worker process computes one result and
// ends. For work that a call needs immediately and that the daemon must not do itself, such as
// preparing kernels or reading a file's header.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/config/paths.h"
#include "server/processes/supervisor.h"
#include "server/store/done.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

struct OneShotOptions {
  StatePaths paths;
  std::string kind;     // for logs
  int running_max = 1;  // processes that run concurrently
  int waiting_max = 1;  // calls that wait for a process
  int64_t time_max_ms = 60'000;
  Error busy;  // the error if running_max run and waiting_max wait
  Error late;  // the error after time_max_ms
};

/// Returns UNAVAILABLE/SERVER_DRAINING.
Error stopping_error();

/// Thread-safe.
class OneShotRunner {
 public:
  OneShotRunner(Supervisor& supervisor, OneShotOptions options);

  /// Starts the task or queues it. `done` is called once, with an outcome that SUCCEEDED or the
  /// error: the worker's, `busy`, `late`, INTERNAL/WORKER_LOST, UNAVAILABLE/SERVER_DRAINING,
  /// FAILED_PRECONDITION/SANDBOX_UNAVAILABLE. `sandbox` and `gpus` as in Supervisor::NewTask.
  void run(v1::Assignment assignment, v1::WorkerSandbox sandbox, Done<v1::Outcome> done,
           std::vector<std::string> gpus = {});
  /// Ends all waiting and later calls with UNAVAILABLE/SERVER_DRAINING.
  void drain();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also owned by the running tasks
};

}  // namespace trainyard::server
