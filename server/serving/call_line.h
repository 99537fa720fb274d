// server/serving/call_line.h: calls to models that wait for a worker, those of one kind: a queue
// for each model, and whose turn it is.
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

/// Calls of one kind, which wait for one another and not for those of another kind.
struct CallLimits {
  int running_max = 1;           // workers that compute calls of this kind at a time
  int64_t time_max_ms = 60'000;  // in a worker
  // That wait, of one model and in all. Beyond the latter a model may still have one.
  int64_t model_calls_max = 1, calls_max = 1;
  int64_t model_bytes_max = 32 << 20, bytes_max = 256 << 20;
  int batch_calls_max = 1;
  int64_t batch_bytes_max = 1 << 20;  // but for a call that has more
  Error busy;  // the answer beyond the bounds, and to who waited for too long
  Error late;  // the answer after time_max_ms

  /// For a worker: as long as the two batches that may be in front of it.
  int64_t waiting_max_ms() const { return 2 * time_max_ms; }
};

/// Whose worker may answer: the files in a model's folder never change.
struct WarmModel {
  std::string job_uid;     // names the folder
  int64_t size_bytes = 0;  // of its weights
};

/// Names one call.
using CallNumber = int64_t;

struct Call {
  CallNumber number = 0;
  CallKind kind = CallKind::kPredict;
  WarmModel model;
  v1::ServeCall message;
  int64_t bytes = 0;
  Done<v1::Outcome> done;
  TextHandler on_text;
  int64_t since_us = 0;     // waits since
  bool alone = false;       // a batch with it has failed
  bool lost = false;        // so has a worker
  bool text_given = false;  // and so cannot begin again
  bool cancelled = false;
};

/// Calls of one kind to one model.
struct ModelQueue {
  std::deque<Call> calls;
  int64_t bytes = 0;
};

/// All calls of one kind. Not thread-safe.
struct CallLine {
  int running = 0;  // workers
  int64_t calls = 0, bytes = 0;
  std::map<std::string, ModelQueue> queues;  // by model; none is empty
  std::deque<std::string> turns;             // the models of `queues`, the next one first

  bool admits(const Call& call, const CallLimits& max) const;
  /// `first`: in front of those of its model that wait.
  void put(Call call, bool first);
  Call take(ModelQueue& queue, std::deque<Call>::iterator at);
  /// After take(): an empty queue has no turn.
  void drop_if_empty(const std::string& model);
  /// The next ones of a queue that is not empty; at least one.
  std::vector<Call> take_batch(ModelQueue& queue, const CallLimits& max);
  /// Drops all that wait.
  void clear();
};

}  // namespace trainyard::server
