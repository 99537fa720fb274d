// server/events/event_hub.h: events are stored first, then watchers are notified.
//
// A watcher is a cursor into a job's stored events. It holds no events: it is notified of newer
// ones and reads them from the store when its client can take them. So a slow watcher costs
// nothing, every watcher sees each event once and in order, and training never waits for one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/store/store.h"
#include "src/base/result.h"

namespace trainyard::server {

class EventHub;

class Watcher {
 public:
  ~Watcher();  // on_ready is not running and will not be called again when this returns
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  struct Next {
    std::vector<v1::Event> events;  // empty: caught up; on_ready will be called once
    int64_t oldest_seq = 0;
    int64_t newest_seq = 0;
    bool ended = false;  // the job has a terminal state, and its last event is here or came before
  };
  /// The next events, from the store. One caller at a time. JOB_NOT_FOUND if the job was removed.
  Result<Next> next(int32_t count_max = kWatchBatchMax);

  static constexpr int32_t kWatchBatchMax = 256;

 private:
  friend class EventHub;
  struct State;
  explicit Watcher(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;  // also held by the hub's thread while it calls on_ready
};

/// Thread-safe. Make it after the store and before the first change; destroy it after every
/// watcher and before the store.
class EventHub {
 public:
  explicit EventHub(Store& store);
  ~EventHub();

  /// A watcher of events after `after`. `on_ready` is called on the hub's thread each time that
  /// newer events are stored after next() had none to give, once per such next(). It may call
  /// next() and start a gRPC write; it must not wait for a client, nor destroy its watcher.
  /// JOB_NOT_FOUND; INVALID_ARGUMENT/SEQUENCE_INVALID; OUT_OF_RANGE/SEQUENCE_IN_FUTURE.
  Result<std::unique_ptr<Watcher>> watch(const std::string& job_uid, int64_t after,
                                         std::function<void()> on_ready);

 private:
  friend class Watcher;
  struct Impl;
  JobStore& jobs_;
  std::shared_ptr<Impl> impl_;  // shared with the store's observer, which may be called last
};

}  // namespace trainyard::server
