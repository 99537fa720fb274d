// server/events/event_hub.h: delivers stored events to their watchers.
//
// A job's recent events are read from the store and serialized once, into blocks that all its
// watchers share. A watcher is a position in this sequence. It requests the next events and is
// called back, with a block from memory if its position is within the recent blocks, otherwise with
// a block read from the store. So every watcher gets each event once and in order. A slow watcher
// keeps only one block in memory, training never waits for a watcher, and the requesting thread
// never waits for the store.
//
// With many watchers, events are batched: at most kWakeUpsPerSecond watchers are called per second,
// but no event is delayed by more than kPaceMax.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/store.h"
#include "src/base/mutex.h"
#include "src/base/result.h"

namespace trainyard::server {

class EventHub;

/// Consecutive events of a job, serialized as a WatchJobResponse that has them in its field
/// `events`.
class EventBlock {
 public:
  int64_t first_seq = 0;
  std::string bytes;
  // End offset in `bytes` of each event, which is stored as tag, length and message.
  std::vector<size_t> ends;

  int64_t last_seq() const { return first_seq + static_cast<int64_t>(ends.size()) - 1; }
  size_t begin(size_t event) const { return event == 0 ? 0 : ends[event - 1]; }
  void append(std::string_view event);
  /// Returns this block with unpacked metrics, for clients that do not read packed metrics. It is
  /// created at the first call and shared by all.
  std::shared_ptr<const EventBlock> unpacked() const;

 private:
  mutable Mutex mu_;
  mutable std::shared_ptr<const EventBlock> unpacked_ TRAINYARD_GUARDED_BY(mu_);
};

/// The events that a watcher gets: those of a block from `first` on. A null block carries no
/// events.
struct EventRun {
  std::shared_ptr<const EventBlock> block;  // shared by the job's watchers
  size_t first = 0;                         // index into `ends`
  bool ended = false;  // the job has ended, and this run or an earlier one has its last event
};

class Watcher {
 public:
  /// Called once for each request(), on one of the hub's threads. An error ends the watch, for
  /// example JOB_NOT_FOUND after the job was removed. The function may start a gRPC write and call
  /// request(). It must not throw, wait for a client, or destroy its watcher.
  using OnEvents = std::function<void(Result<EventRun>)>;

  ~Watcher();  // waits until OnEvents is not running and will not be called again
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Requests the events after the last run. At most one request may be open at a time. Never
  /// waits.
  void request();

 private:
  friend class EventHub;
  struct State;
  explicit Watcher(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;  // shared with the hub's threads during calls
};

/// Thread-safe. Must be created after the store and before the first change, and destroyed after
/// every watcher and before the store.
class EventHub {
 public:
  static constexpr int kWakeUpsPerSecond = 5000;
  static constexpr std::chrono::milliseconds kPaceMax{250};
  static constexpr int64_t kLiveBlockBytesMax = 64 << 10;  // plus one event
  static constexpr int64_t kPastBlockBytesMax = 16 << 10;  // plus one event
  static constexpr size_t kRecentBytesMax = 4 << 20;       // per job
  static constexpr size_t kRecentBytesInAllMax = 32 << 20;

  explicit EventHub(Store& store);
  ~EventHub();

  /// Creates a watcher of the events after `after`. May wait for the store. Errors: JOB_NOT_FOUND;
  /// INVALID_ARGUMENT/ SEQUENCE_INVALID; OUT_OF_RANGE/SEQUENCE_IN_FUTURE.
  Result<std::unique_ptr<Watcher>> watch(const std::string& job_uid, int64_t after,
                                         Watcher::OnEvents on_events);
  /// Runs `task` on the thread that reads the store for watchers that are behind. It must not
  /// throw. Tasks that wait when the hub is destroyed are dropped.
  void post(std::function<void()> task);

 private:
  friend class Watcher;
  struct Feed;
  struct Impl;
  // Shared with the store's observer, which may still be called after the destructor.
  std::shared_ptr<Impl> impl_;
};

}  // namespace trainyard::server
