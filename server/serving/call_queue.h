// server/serving/call_queue.h: the calls of one kind that wait for a worker: a queue for each
// model, and the order in which the models take turns.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "server/store/done.h"
#include "src/base/result.h"
#include "trainyard/v1/model_service.pb.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard::server {

enum class CallKind : uint8_t { kPredict, kGenerate, kEvaluate };
inline constexpr size_t kCallKinds = 3;
using TextHandler = std::function<void(const v1::GenerateResponse&)>;

/// Limits of the calls of one kind, which do not wait for calls of other kinds.
struct CallLimits {
  int running_max = 1;           // workers that compute calls of this kind concurrently
  int64_t time_max_ms = 60'000;  // computing time in a worker
  // Limits of the waiting calls, per model and for all models. If the limits for all are reached, a
  // model without waiting calls may still have one.
  int64_t model_calls_max = 1, calls_max = 1;
  int64_t model_bytes_max = 32 << 20, bytes_max = 256 << 20;
  int batch_calls_max = 1;
  int64_t batch_bytes_max = 1 << 20;  // a batch of one call may have more
  Error busy;  // the error beyond these limits, and for calls that have waited too long
  Error late;  // the error after time_max_ms

  /// Returns how long a call may wait for a worker: as long as two batches may take that are
  /// computed before it.
  int64_t waiting_max_ms() const { return 2 * time_max_ms; }
};

/// Identifies a model and thereby the workers that may serve it: the files in a model's folder
/// never change.
struct WarmModel {
  std::string job_uid;     // names the model's folder
  int64_t size_bytes = 0;  // the size of its weights
};

/// Identifies a call.
using CallNumber = int64_t;

struct Call {
  CallNumber number = 0;
  CallKind kind = CallKind::kPredict;
  WarmModel model;
  v1::ServeCall message;
  int64_t bytes = 0;
  Done<v1::Outcome> done;
  TextHandler on_text;
  int64_t since_us = 0;     // when it began to wait
  bool alone = false;       // a batch with it has failed, so it is computed alone
  bool lost = false;        // a worker that had it has ended unexpectedly
  bool text_given = false;  // some of its text was sent, so it cannot be repeated
  bool cancelled = false;
};

/// Calls of one kind to one model.
struct ModelQueue {
  std::deque<Call> calls;
  int64_t bytes = 0;
};

/// All calls of one kind. Not thread-safe.
struct CallQueue {
  int running = 0;  // workers that compute such calls
  int64_t calls = 0, bytes = 0;
  std::map<std::string, ModelQueue> queues;  // by model; no queue is empty
  std::deque<std::string> turns;             // the models in `queues`; the first one is next

  bool admits(const Call& call, const CallLimits& max) const;
  /// Adds a call after the waiting calls of its model, or with `first` before them.
  void put(Call call, bool first);
  Call take(ModelQueue& queue, std::deque<Call>::iterator at);
  /// Must be called after take(): removes the model's queue if it is empty.
  void drop_if_empty(const std::string& model);
  /// Takes the next batch, of at least one call, from a queue that is not empty.
  std::vector<Call> take_batch(ModelQueue& queue, const CallLimits& max);
  /// Removes all waiting calls.
  void clear();
};

}  // namespace trainyard::server
