// server/events/event_hub.h: events are stored first, then brought to their watchers.
//
// A job's recent events are read from the store and turned into bytes once, in blocks that all its
// watchers share. A watcher is a place in that sequence: it asks for what comes next and is called
// back, from memory if it stands within the recent blocks, else with a piece read from the store.
// So every watcher sees each event once and in order, a slow one pins one block, training never
// waits for one, and the thread that asks never waits for the store.
//
// When there are many, events gather between two rounds: kWakeUpsPerSecond watchers are called a
// second at most, and no event waits longer than kPaceMax for that.
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

/// Consecutive events of a job, as a WatchJobResponse that has them as its `events`.
class EventBlock {
 public:
  int64_t first_seq = 0;
  std::string bytes;
  std::vector<size_t> ends;  // of each event in `bytes`: its tag, its length, the event

  int64_t last_seq() const { return first_seq + static_cast<int64_t>(ends.size()) - 1; }
  size_t begin(size_t event) const { return event == 0 ? 0 : ends[event - 1]; }
  void append(std::string_view event);
  /// The same for those who do not read packed metrics: made when the first asks, shared by all.
  std::shared_ptr<const EventBlock> unpacked() const;

 private:
  mutable Mutex mu_;
  mutable std::shared_ptr<const EventBlock> unpacked_ TRAINYARD_GUARDED_BY(mu_);
};

/// What a watcher gets: the events of a block from `first` on; with null only the end.
struct EventRun {
  std::shared_ptr<const EventBlock> block;  // whoever writes it last may be any of its watchers
  size_t first = 0;                         // index into `ends`
  bool ended = false;  // the job has a terminal state, and its last event is here or came before
};

class Watcher {
 public:
  /// Is called once for each request(), on one of the hub's threads; an error ends the watch, for
  /// example JOB_NOT_FOUND after the job was removed. It may start a gRPC write and call request();
  /// it must not throw, wait for a client, or destroy its watcher.
  using OnEvents = std::function<void(Result<EventRun>)>;

  ~Watcher();  // OnEvents is not running and will not be called again when this returns
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Asks for what follows the last run. At most one request is open at a time. Never waits.
  void request();

 private:
  friend class EventHub;
  struct State;
  explicit Watcher(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;  // also held by the hub's threads while they call
};

/// Thread-safe. Make it after the store and before the first change; destroy it after every
/// watcher and before the store.
class EventHub {
 public:
  static constexpr int kWakeUpsPerSecond = 5000;
  static constexpr std::chrono::milliseconds kPaceMax{250};
  static constexpr int64_t kLiveBlockBytesMax = 64 << 10;  // and one event
  static constexpr int64_t kPastBlockBytesMax = 16 << 10;  // and one event
  static constexpr size_t kRecentBytesMax = 4 << 20;       // of one job
  static constexpr size_t kRecentBytesInAllMax = 32 << 20;

  explicit EventHub(Store& store);
  ~EventHub();

  /// A watcher of events after `after`. May wait for the store. JOB_NOT_FOUND; INVALID_ARGUMENT/
  /// SEQUENCE_INVALID; OUT_OF_RANGE/SEQUENCE_IN_FUTURE.
  Result<std::unique_ptr<Watcher>> watch(const std::string& job_uid, int64_t after,
                                         Watcher::OnEvents on_events);
  /// Runs `task` on the thread that reads the store for watchers that are behind. It must not
  /// throw. Tasks that wait when the hub is destroyed are dropped.
  void post(std::function<void()> task);

 private:
  friend class Watcher;
  struct Feed;
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the store's observer, which may be called last
};

}  // namespace trainyard::server
