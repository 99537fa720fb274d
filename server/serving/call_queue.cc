#include "server/serving/call_queue.h"

#include <utility>

#include "src/base/check.h"

namespace trainyard::server {

bool CallQueue::admits(const Call& call, const CallLimits& max) const {
  const auto it = queues.find(call.model.job_uid);
  if (it == queues.end()) return true;
  const ModelQueue& queue = it->second;
  return std::ssize(queue.calls) < max.model_calls_max && calls < max.calls_max &&
         queue.bytes + call.bytes <= max.model_bytes_max && bytes + call.bytes <= max.bytes_max;
}

void CallQueue::put(Call call, bool first) {
  const auto [it, fresh] = queues.try_emplace(call.model.job_uid);
  if (fresh) turns.push_back(it->first);
  ModelQueue& queue = it->second;
  ++calls;
  bytes += call.bytes;
  queue.bytes += call.bytes;
  if (first) {
    queue.calls.push_front(std::move(call));
  } else {
    queue.calls.push_back(std::move(call));
  }
}

Call CallQueue::take(ModelQueue& queue, std::deque<Call>::iterator at) {
  Call call = std::move(*at);
  queue.calls.erase(at);
  --calls;
  bytes -= call.bytes;
  queue.bytes -= call.bytes;
  TRAINYARD_CHECK(calls >= 0 && queue.bytes >= 0, "more calls leave the queue than are in it");
  return call;
}

void CallQueue::drop_if_empty(const std::string& model) {
  const auto it = queues.find(model);
  if (it == queues.end() || !it->second.calls.empty()) return;
  TRAINYARD_CHECK(it->second.bytes == 0, "no calls to " + model + " wait, but " +
                                             std::to_string(it->second.bytes) +
                                             " bytes of them are counted");
  queues.erase(it);
  std::erase(turns, model);
  TRAINYARD_CHECK(!queues.empty() || (calls == 0 && bytes == 0),
                  "no model has waiting calls, but " + std::to_string(calls) + " calls of " +
                      std::to_string(bytes) + " bytes are counted");
}

std::vector<Call> CallQueue::take_batch(ModelQueue& queue, const CallLimits& max) {
  std::vector<Call> batch;
  int64_t batch_bytes = 0;
  while (!queue.calls.empty()) {
    const Call& next = queue.calls.front();
    if (!batch.empty() &&
        (next.alone || batch.back().alone || std::ssize(batch) >= max.batch_calls_max ||
         batch_bytes + next.bytes > max.batch_bytes_max)) {
      break;
    }
    batch_bytes += next.bytes;
    batch.push_back(take(queue, queue.calls.begin()));
  }
  return batch;
}

void CallQueue::clear() {
  calls = bytes = 0;
  queues.clear();
  turns.clear();
}

}  // namespace trainyard::server
