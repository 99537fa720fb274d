// server/serving/warm_workers.h: workers that keep a model between calls to it.
//
//   submit -> waits in its model's queue -> [a batch of it] -> a worker with the model -> answer
//
// A call goes to a worker that has its model and is idle, or else one is started. Calls that arrive
// while a batch of their model is computed wait and form the next one, so that a batch is as large
// as the load makes it and nobody waits for one to fill up. Models take turns. Idle workers stay
// until they are too many or too large (the least recently used ends first), have been idle for too
// long, or their model is deleted.
//
// A worker that ends without its answers, or is too late with those of a batch, costs no call its
// answer: each is asked once more, alone, so that one that kills workers harms no other.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/config/paths.h"
#include "server/processes/supervisor.h"
#include "server/serving/call_line.h"
#include "server/store/done.h"
#include "src/base/clock.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

struct WarmOptions {
  StatePaths paths;
  int threads = 1;
  int workers_max = 8;                   // that stay between calls; 0: each ends with its calls
  int64_t bytes_max = int64_t{2} << 30;  // of the memory of those
  int64_t idle_max_ms = 300'000;
  int64_t loss_grace_ms = 1'000;  // from asking a worker to stop to SIGKILL
};

/// Thread-safe.
class WarmWorkers {
 public:
  using Kind = CallKind;
  static constexpr size_t kKinds = kCallKinds;
  using TextHandler = server::TextHandler;

  /// `limits` by kind.
  WarmWorkers(Supervisor& supervisor, WarmOptions options, std::array<CallLimits, kKinds> limits,
              const Clock& clock = system_clock());
  /// Ends all workers; drain() first.
  ~WarmWorkers();

  /// `call` has no number yet. `done` is called once, with an outcome that SUCCEEDED or the error:
  /// the worker's refusal, `busy`, `late`, INTERNAL/WORKER_LOST, UNAVAILABLE/SERVER_DRAINING,
  /// CANCELLED after cancel(). `on_text` gets what a generation adds, in order, before `done`.
  CallNumber submit(Kind kind, const WarmModel& model, v1::ServeCall call, Done<v1::Outcome> done,
                    TextHandler on_text = nullptr);
  /// The answer is no longer needed. Not an error if it has been given.
  void cancel(CallNumber number);
  /// The model is deleted: its workers end, and calls that wait for one get `error`.
  void forget(const std::string& job_uid, const Error& error);
  /// Answers all waiting and later calls with UNAVAILABLE/SERVER_DRAINING, and ends idle workers.
  void drain();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also held by the workers
};

}  // namespace trainyard::server
