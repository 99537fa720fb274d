#include "server/events/event_hub.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "proto/metrics/packed_metrics.h"
#include "src/base/check.h"
#include "src/base/mutex.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {
namespace {

using Clock = std::chrono::steady_clock;
using BlockPtr = std::shared_ptr<const EventBlock>;

constexpr size_t kSmallestRing = 16 << 10;

/// Sets `out` to a block of the events after `after`, up to the next gap; leaves it null if there
/// are none. A fault becomes an error for the job's watchers, so that the hub's threads continue.
Result<EventRange> read_block(const JobStore& jobs, const std::string& uid, int64_t after,
                              int64_t bytes_max, BlockPtr& out) try {
  auto block = std::make_shared<EventBlock>();
  ASSIGN_OR_RETURN(
      const EventRange range,
      jobs.visit_events(uid, after, INT32_MAX, bytes_max, [&](int64_t seq, std::string_view event) {
        if (block->ends.empty()) block->first_seq = seq;
        TRAINYARD_CHECK(seq == block->last_seq() + 1,
                        "event " + std::to_string(seq) + " of job " + uid + " follows event " +
                            std::to_string(block->last_seq()) + " in one block");
        block->append(event);
      }));
  block->bytes.shrink_to_fit();
  block->ends.shrink_to_fit();
  if (!block->ends.empty()) out = std::move(block);
  return range;
} catch (const InvariantError& e) {
  return make_error(ErrorCode::kInternal, "INTERNAL", e.what());
}

bool has(const BlockPtr& block, int64_t seq) {
  return block && block->first_seq <= seq && seq <= block->last_seq();
}

/// Returns the events of the block from `seq` on, or from its first event if the events before it
/// were thinned.
EventRun run_from(BlockPtr block, int64_t seq) {
  const auto first = static_cast<size_t>(std::max<int64_t>(0, seq - block->first_seq));
  return {std::move(block), first, false};
}

}  // namespace

void EventBlock::append(std::string_view event) {
  constexpr int kField = v1::WatchJobResponse::kEventsFieldNumber;
  static_assert(kField < 16, "its tag is one byte");
  uint8_t head[6] = {kField << 3 | 2};
  const uint8_t* end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
      static_cast<uint32_t>(event.size()), head + 1);
  bytes.append(reinterpret_cast<const char*>(head), static_cast<size_t>(end - head));
  bytes.append(event);
  ends.push_back(bytes.size());
}

std::shared_ptr<const EventBlock> EventBlock::unpacked() const {
  const MutexLock lock(mu_);
  if (unpacked_) return unpacked_;
  v1::WatchJobResponse packed;  // cannot fail: the store has parsed each event
  packed.ParseFromString(bytes);
  const auto block = std::make_shared<EventBlock>();
  block->first_seq = first_seq;
  for (v1::Event& event : *packed.mutable_events()) {
    unpack_metrics(event);
    block->append(event.SerializeAsString());
  }
  unpacked_ = block;
  return unpacked_;
}

/// The state of a watched job. Guarded by the hub's mutex.
struct EventHub::Feed {
  explicit Feed(std::string job_uid) : uid(std::move(job_uid)) {}

  const std::string uid;
  int watchers = 0;
  // The newest event that was read; at the start the newest event at the first watch(), -1 before
  // that. Only the hub's live thread advances it.
  int64_t end_seq = -1;
  int64_t reported_seq = 0;  // newest event that the store reported
  int64_t final_seq = -1;    // the job's last event, once it has ended
  bool removed = false;
  std::deque<BlockPtr> recent;  // consecutive blocks without a gap, up to end_seq
  size_t recent_bytes = 0;
  // The block last read for a watcher behind `recent`; other watchers often need the same block.
  BlockPtr past;
  // Watchers whose cursor is at end_seq or beyond.
  std::vector<std::shared_ptr<Watcher::State>> waiting;
  bool scheduled = false;
  Clock::time_point served;

  bool has_news() const { return reported_seq > end_seq || removed; }
  void note(const EventRange& range) {
    if (is_terminal(range.state)) final_seq = range.newest_seq;
  }
  BlockPtr find_recent(int64_t seq) const {
    const auto after = std::upper_bound(
        recent.begin(), recent.end(), seq,
        [](int64_t value, const BlockPtr& block) { return value < block->first_seq; });
    if (after == recent.begin() || !has(*std::prev(after), seq)) return nullptr;
    return *std::prev(after);
  }
  void keep(BlockPtr block, size_t bytes_max) {
    TRAINYARD_CHECK(block->first_seq > end_seq, "events of job " + uid + " are added twice");
    end_seq = block->last_seq();
    recent_bytes += block->bytes.size();
    recent.push_back(std::move(block));
    while (recent.size() > 1 && recent_bytes > bytes_max) {
      recent_bytes -= recent.front()->bytes.size();
      recent.pop_front();
    }
  }
};

// The state of a watcher. Either the watcher's owner or a thread of the hub during a call may
// release it last.
struct Watcher::State {
  State(std::shared_ptr<EventHub::Impl> hub_impl, std::shared_ptr<EventHub::Feed> job_feed,
        int64_t after, OnEvents call)
      : hub(std::move(hub_impl)),
        feed(std::move(job_feed)),
        on_events(std::move(call)),
        cursor(after) {}

  const std::shared_ptr<EventHub::Impl> hub;
  const std::shared_ptr<EventHub::Feed> feed;
  const OnEvents on_events;
  // Guarded by the hub's mutex.
  int64_t cursor;     // seq of the last event that it was given
  bool gone = false;  // the watcher was destroyed
  // The number of running calls of on_events; a call may begin before the previous one has
  // returned.
  int calls = 0;
};

struct EventHub::Impl : std::enable_shared_from_this<EventHub::Impl> {
  using WatcherPtr = std::shared_ptr<Watcher::State>;

  explicit Impl(JobStore& job_store) : jobs(job_store) {}

  void note_changes(std::span<const JobChange> changes);
  void request(const WatcherPtr& watcher);
  void leave(const WatcherPtr& watcher);
  void post(std::function<void()> task);
  void stop();

  void run_live(const std::stop_token& stop);
  void run_reader(const std::stop_token& stop);
  void schedule(const std::shared_ptr<Feed>& feed) TRAINYARD_REQUIRES(mu);
  void serve(const std::shared_ptr<Feed>& feed);
  void give_recent(const WatcherPtr& watcher);
  void give(const WatcherPtr& watcher, Result<EventRun> run);
  void read_past(const WatcherPtr& watcher);
  Clock::duration pace() const TRAINYARD_REQUIRES(mu);
  size_t ring_bytes_max() const TRAINYARD_REQUIRES(mu);

  JobStore& jobs;
  Mutex mu;
  CondVar wake_live;
  CondVar wake_reader;
  CondVar called;
  std::unordered_map<std::string, std::shared_ptr<Feed>> feeds TRAINYARD_GUARDED_BY(mu);
  int64_t watchers TRAINYARD_GUARDED_BY(mu) = 0;
  std::multimap<Clock::time_point, std::shared_ptr<Feed>> due TRAINYARD_GUARDED_BY(mu);
  // Watchers with an open request that recent blocks can answer.
  std::deque<WatcherPtr> ready TRAINYARD_GUARDED_BY(mu);
  std::deque<std::function<void()>> tasks TRAINYARD_GUARDED_BY(mu);
  std::jthread live;
  std::jthread reader;
};

// Runs on the store's answering thread: must be fast for any number of watchers.
void EventHub::Impl::note_changes(std::span<const JobChange> changes) {
  const MutexLock lock(mu);
  for (const JobChange& change : changes) {
    const auto found = feeds.find(change.uid);
    if (found == feeds.end()) continue;
    Feed& feed = *found->second;
    feed.reported_seq = std::max(feed.reported_seq, change.newest_seq);
    feed.removed |= change.removed;
    if (is_terminal(change.state) && !change.removed) feed.final_seq = change.newest_seq;
    schedule(found->second);
  }
}

Clock::duration EventHub::Impl::pace() const {
  return std::min<Clock::duration>(
      kPaceMax, std::chrono::microseconds(watchers * 1'000'000 / kWakeUpsPerSecond));
}

size_t EventHub::Impl::ring_bytes_max() const {
  return std::clamp(kRecentBytesInAllMax / std::max<size_t>(1, feeds.size()), kSmallestRing,
                    kRecentBytesMax);
}

void EventHub::Impl::schedule(const std::shared_ptr<Feed>& feed) {
  if (feed->scheduled || feed->waiting.empty() || !feed->has_news()) return;
  feed->scheduled = true;
  due.emplace(feed->served + pace(), feed);
  wake_live.notify_one();
}

/// Does not wait or call the watcher; the hub's threads deliver the events.
void EventHub::Impl::request(const WatcherPtr& watcher) {
  const MutexLock lock(mu);
  if (watcher->gone) return;
  Feed& feed = *watcher->feed;
  const bool ended = watcher->cursor == feed.final_seq;
  if (ended || feed.find_recent(watcher->cursor + 1)) {
    ready.push_back(watcher);
    wake_live.notify_one();
  } else if (watcher->cursor >= feed.end_seq) {
    feed.waiting.push_back(watcher);
    schedule(watcher->feed);
  } else {
    tasks.emplace_back([this, watcher] { read_past(watcher); });
    wake_reader.notify_one();
  }
}

// Alternates between two kinds of work: watchers whose next events are in memory, then one job with
// new events.
void EventHub::Impl::run_live(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::deque<WatcherPtr> asked;
    std::shared_ptr<Feed> feed;
    {
      MutexLock lock(mu);
      const Clock::time_point until =
          due.empty() ? Clock::now() + std::chrono::hours(1) : due.begin()->first;
      wake_live.wait_until(lock, stop, until, [&]() TRAINYARD_REQUIRES(mu) {
        return !ready.empty() || (!due.empty() && due.begin()->first < until);
      });
      asked.swap(ready);
      if (!due.empty() && due.begin()->first <= Clock::now()) {
        feed = std::move(due.begin()->second);
        due.erase(due.begin());
        feed->scheduled = false;
      }
    }
    for (const WatcherPtr& watcher : asked) give_recent(watcher);
    if (feed) serve(feed);
  }
}

/// Reads the new events of a job and gives them to the waiting watchers.
void EventHub::Impl::serve(const std::shared_ptr<Feed>& feed) {
  int64_t end = 0;
  {
    const MutexLock lock(mu);
    if (feed->waiting.empty()) return;
    end = feed->end_seq;
  }
  std::vector<BlockPtr> blocks;
  std::optional<Error> error;
  EventRange range;
  for (size_t bytes = 0; bytes < kRecentBytesMax;) {
    BlockPtr block;
    Result<EventRange> read = read_block(jobs, feed->uid, end, kLiveBlockBytesMax, block);
    if (!read.ok()) {
      error = read.error();
      break;
    }
    range = *read;
    if (!block) break;
    end = block->last_seq();
    bytes += block->bytes.size();
    blocks.push_back(std::move(block));
    if (end == range.newest_seq) break;
  }
  std::vector<WatcherPtr> waiting;
  {
    const MutexLock lock(mu);
    feed->served = Clock::now();
    feed->note(range);
    for (BlockPtr& block : blocks) feed->keep(std::move(block), ring_bytes_max());
    // Watchers that are already at the end keep waiting. A watcher that is destroyed from here on
    // is marked as gone.
    const auto behind =
        std::partition(feed->waiting.begin(), feed->waiting.end(), [&](const WatcherPtr& watcher) {
          return !error && watcher->cursor >= feed->end_seq && watcher->cursor != feed->final_seq;
        });
    waiting.assign(behind, feed->waiting.end());
    feed->waiting.erase(behind, feed->waiting.end());
    schedule(feed);
  }
  for (const WatcherPtr& watcher : waiting) {
    if (error) {
      give(watcher, *error);
    } else {
      give_recent(watcher);
    }
  }
}

/// Gives the watcher its next events from memory.
void EventHub::Impl::give_recent(const WatcherPtr& watcher) {
  EventRun run;
  {
    const MutexLock lock(mu);
    const Feed& feed = *watcher->feed;
    if (BlockPtr block = feed.find_recent(watcher->cursor + 1)) {
      run = run_from(std::move(block), watcher->cursor + 1);
    } else if (watcher->cursor != feed.final_seq) {  // the block was dropped in the meantime
      tasks.emplace_back([this, watcher] { read_past(watcher); });
      wake_reader.notify_one();
      return;
    }
  }
  give(watcher, std::move(run));
}

void EventHub::Impl::give(const WatcherPtr& watcher, Result<EventRun> run) {
  {
    const MutexLock lock(mu);
    if (watcher->gone) return;
    if (run.ok()) {
      if (run->block) {
        TRAINYARD_CHECK(run->block->last_seq() > watcher->cursor,
                        "a watcher of job " + watcher->feed->uid + " would receive an event again");
        watcher->cursor = run->block->last_seq();
      }
      run->ended = watcher->cursor == watcher->feed->final_seq;
    }
    ++watcher->calls;
  }
  watcher->on_events(std::move(run));
  const MutexLock lock(mu);
  --watcher->calls;
  if (watcher->gone) called.notify_all();
}

/// Gives the watcher its next events from the store.
void EventHub::Impl::read_past(const WatcherPtr& watcher) {
  BlockPtr block;
  int64_t next = 0;
  {
    const MutexLock lock(mu);
    if (watcher->gone) return;
    next = watcher->cursor + 1;
    if (has(watcher->feed->past, next)) block = watcher->feed->past;
  }
  if (!block) {
    Feed& feed = *watcher->feed;
    const Result<EventRange> range =
        read_block(jobs, feed.uid, next - 1, kPastBlockBytesMax, block);
    if (!range.ok()) return give(watcher, range.error());
    const MutexLock lock(mu);
    feed.note(*range);
    feed.past = block;
  }
  give(watcher, block ? run_from(std::move(block), next) : EventRun());
}

void EventHub::Impl::run_reader(const std::stop_token& stop) {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(mu);
      if (!wake_reader.wait(lock, stop, [&]() TRAINYARD_REQUIRES(mu) { return !tasks.empty(); })) {
        return;
      }
      if (stop.stop_requested()) return;
      task = std::move(tasks.front());
      tasks.pop_front();
    }
    task();
  }
}

void EventHub::Impl::post(std::function<void()> task) {
  const MutexLock lock(mu);
  tasks.push_back(std::move(task));
  wake_reader.notify_one();
}

void EventHub::Impl::leave(const WatcherPtr& watcher) {
  MutexLock lock(mu);
  watcher->gone = true;
  Feed& feed = *watcher->feed;
  TRAINYARD_CHECK(watchers > 0 && feed.watchers > 0, "a watcher is removed twice");
  --watchers;
  std::erase(feed.waiting, watcher);
  if (--feed.watchers == 0) feeds.erase(feed.uid);
  called.wait(lock, [&] { return watcher->calls == 0; });
}

void EventHub::Impl::stop() {
  live.request_stop();
  reader.request_stop();
  live.join();
  reader.join();
  // Destroyed without the lock, because a task may own a watcher.
  std::deque<std::function<void()>> dropped;
  {
    const MutexLock lock(mu);
    dropped.swap(tasks);
    ready.clear();
    due.clear();
  }
}

Watcher::~Watcher() { state_->hub->leave(state_); }

void Watcher::request() { state_->hub->request(state_); }

EventHub::EventHub(Store& store) : impl_(std::make_shared<Impl>(store.jobs())) {
  store.observe(
      [impl = impl_](std::span<const JobChange> changes) { impl->note_changes(changes); });
  impl_->live = std::jthread([impl = impl_.get()](std::stop_token stop) { impl->run_live(stop); });
  impl_->reader =
      std::jthread([impl = impl_.get()](std::stop_token stop) { impl->run_reader(stop); });
}

EventHub::~EventHub() { impl_->stop(); }

void EventHub::post(std::function<void()> task) { impl_->post(std::move(task)); }

Result<std::unique_ptr<Watcher>> EventHub::watch(const std::string& job_uid, int64_t after,
                                                 Watcher::OnEvents on_events) {
  std::shared_ptr<Feed> feed;
  std::shared_ptr<Watcher::State> state;
  bool known = false;
  {
    const MutexLock lock(impl_->mu);
    std::shared_ptr<Feed>& entry = impl_->feeds[job_uid];
    if (!entry) entry = std::make_shared<Feed>(job_uid);
    feed = entry;
    ++feed->watchers;
    ++impl_->watchers;
    known = feed->end_seq >= 0 && after >= 0 &&
            after <= std::max(feed->end_seq, feed->reported_seq) && !feed->removed;
    state = std::make_shared<Watcher::State>(impl_, feed, after, std::move(on_events));
  }
  std::unique_ptr<Watcher> watcher(new Watcher(std::move(state)));
  if (known) return watcher;
  // Reads the store after the feed exists, so that no commit is missed.
  ASSIGN_OR_RETURN(
      const EventRange range,
      impl_->jobs.visit_events(job_uid, after, 0, 0, [](int64_t, std::string_view) {}));
  const MutexLock lock(impl_->mu);
  feed->note(range);
  if (feed->end_seq < 0) feed->end_seq = range.newest_seq;
  return watcher;
}

}  // namespace trainyard::server
