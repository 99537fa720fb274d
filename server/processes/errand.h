// server/processes/errand.h: asks a worker process one question and waits for its outcome. For
// work that a call needs immediately and the daemon must not do itself: preparing kernels, reading
// a file's header.
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

struct ErrandOptions {
  StatePaths paths;
  std::string kind;     // for logs
  int running_max = 1;  // processes at a time
  int waiting_max = 1;  // calls that wait for one of them
  int64_t time_max_ms = 60'000;
  Error busy;  // the answer if running_max run and waiting_max wait
  Error late;  // the answer after time_max_ms
};

/// UNAVAILABLE/SERVER_DRAINING.
Error stopping_error();

/// Thread-safe.
class ErrandRunner {
 public:
  ErrandRunner(Supervisor& supervisor, ErrandOptions options);

  /// `done` is called once, with an outcome that SUCCEEDED or the error: the worker's refusal,
  /// `busy`, `late`, INTERNAL/WORKER_LOST, UNAVAILABLE/SERVER_DRAINING. `gpus` as of
  /// Supervisor::NewTask.
  void run(v1::Assignment assignment, Done<v1::Outcome> done, std::vector<std::string> gpus = {});
  /// Answers all waiting and later calls with UNAVAILABLE/SERVER_DRAINING.
  void drain();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also held by the tasks that run
};

}  // namespace trainyard::server
