// server/serving/warm_workers.h: workers that keep a model loaded between the calls to it.
//
//   submit -> waits in its model's queue -> batch -> a worker with the model -> answer
//
// A call goes to an idle worker that has its model; if there is none, a worker is started. Calls
// that arrive while a batch of their model is computed form the next batch. So the load determines
// the size of batches, and no call waits for a batch to fill up. Models take turns. Idle workers
// read one model and, if started for an evaluation, one dataset (server/sandbox), so an evaluation
// goes only to a worker that was started for its dataset. They stay until they are too many or too
// large (the least recently used ends first), have been idle for too long, or their model is
// deleted.
//
// If a worker ends without its answers, or exceeds the time limit with a batch, no call is lost:
// each call is computed again, alone, so that a call that kills workers does not harm others.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/config/paths.h"
#include "server/processes/supervisor.h"
#include "server/serving/call_queue.h"
#include "server/store/done.h"
#include "src/base/clock.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

struct WarmOptions {
  StatePaths paths;
  int threads = 1;
  // Workers that stay between calls; 0: each worker ends after its calls.
  int workers_max = 8;
  int64_t bytes_max = int64_t{2} << 30;  // memory of these workers
  int64_t idle_max_ms = 300'000;
  int64_t loss_grace_ms = 1'000;  // from the request to stop a worker until SIGKILL
};

/// Thread-safe.
class WarmWorkers {
 public:
  using Kind = CallKind;
  static constexpr size_t kKinds = kCallKinds;
  using TextHandler = server::TextHandler;

  /// `limits` is indexed by kind.
  WarmWorkers(Supervisor& supervisor, WarmOptions options, std::array<CallLimits, kKinds> limits,
              const Clock& clock = system_clock());
  /// Calls drain(). Busy workers end after their calls.
  ~WarmWorkers();

  /// Submits a call; its number is assigned here. `done` is called once, with an outcome that
  /// SUCCEEDED or the error: the worker's, `busy`, `late`, INTERNAL/WORKER_LOST,
  /// UNAVAILABLE/SERVER_DRAINING, or CANCELLED after cancel(). `on_text` gets the text that a
  /// generation adds, in order, before `done` is called.
  CallNumber submit(Kind kind, const WarmModel& model, v1::ServeCall call, Done<v1::Outcome> done,
                    TextHandler on_text = nullptr);
  /// Cancels a call whose result is no longer needed. Does nothing if the call has ended.
  void cancel(CallNumber number);
  /// Ends the workers of a deleted model; calls that wait for one get `error`.
  void forget(const std::string& job_uid, const Error& error);
  /// Ends all waiting and later calls with UNAVAILABLE/SERVER_DRAINING, and ends idle workers.
  void drain();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also owned by the workers' tasks
};

}  // namespace trainyard::server
