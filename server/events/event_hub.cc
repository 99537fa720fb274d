#include "server/events/event_hub.h"

#include <algorithm>
#include <utility>

#include "src/base/mutex.h"

namespace trainyard::server {

// Either of two threads may release it last: the watcher's owner, or the hub's thread in the middle
// of a call.
struct Watcher::State {
  State(std::weak_ptr<EventHub::Impl> hub_impl, JobStore& job_store, std::string uid, int64_t after,
        std::function<void()> ready)
      : hub(std::move(hub_impl)),
        jobs(job_store),
        job_uid(std::move(uid)),
        on_ready(std::move(ready)),
        cursor(after) {}

  const std::weak_ptr<EventHub::Impl> hub;
  JobStore& jobs;
  const std::string job_uid;
  const std::function<void()> on_ready;

  Mutex mu;
  int64_t cursor TRAINYARD_GUARDED_BY(mu);        // last seq that next() gave
  int64_t told_seq TRAINYARD_GUARDED_BY(mu) = 0;  // newest seq that the store told of
  bool told_removed TRAINYARD_GUARDED_BY(mu) = false;
  bool armed TRAINYARD_GUARDED_BY(mu) = false;    // next() found nothing, on_ready is owed
  bool gone TRAINYARD_GUARDED_BY(mu) = false;     // the watcher was destroyed
  bool calling TRAINYARD_GUARDED_BY(mu) = false;  // on_ready runs
  CondVar called;
};

struct EventHub::Impl {
  void tell(std::span<const JobChange> changes);
  void run(std::stop_token stop);
  void forget(const std::shared_ptr<Watcher::State>& watcher);

  Mutex mu;
  CondVar wake;
  // By job.
  std::unordered_map<std::string, std::vector<std::shared_ptr<Watcher::State>>> watchers
      TRAINYARD_GUARDED_BY(mu);
  // Armed watchers that have something to read. At most one entry per watcher.
  std::vector<std::shared_ptr<Watcher::State>> ready TRAINYARD_GUARDED_BY(mu);
  std::jthread thread;  // last: joined before the others are destroyed
};

// Runs on the store's answering thread: must be fast, whatever the number of watchers of other
// jobs.
void EventHub::Impl::tell(std::span<const JobChange> changes) {
  bool any = false;
  {
    const MutexLock lock(mu);
    for (const JobChange& change : changes) {
      const auto found = watchers.find(change.uid);
      if (found == watchers.end()) continue;
      for (const std::shared_ptr<Watcher::State>& w : found->second) {
        const MutexLock watcher_lock(w->mu);
        w->told_seq = std::max(w->told_seq, change.newest_seq);
        w->told_removed |= change.removed;
        if (!w->armed || (w->told_seq <= w->cursor && !w->told_removed)) continue;
        w->armed = false;
        ready.push_back(w);
        any = true;
      }
    }
  }
  if (any) wake.notify_one();
}

void EventHub::Impl::run(std::stop_token stop) {
  std::vector<std::shared_ptr<Watcher::State>> batch;
  for (;;) {
    {
      MutexLock lock(mu);
      if (!wake.wait(lock, stop, [&]() TRAINYARD_REQUIRES(mu) { return !ready.empty(); })) return;
      batch.swap(ready);
    }
    for (const std::shared_ptr<Watcher::State>& w : batch) {
      {
        const MutexLock lock(w->mu);
        if (w->gone) continue;
        w->calling = true;
      }
      w->on_ready();
      {
        const MutexLock lock(w->mu);
        w->calling = false;
      }
      w->called.notify_all();
    }
    batch.clear();
  }
}

void EventHub::Impl::forget(const std::shared_ptr<Watcher::State>& watcher) {
  const MutexLock lock(mu);
  const auto found = watchers.find(watcher->job_uid);
  if (found == watchers.end()) return;
  std::erase(found->second, watcher);
  if (found->second.empty()) watchers.erase(found);
}

Watcher::~Watcher() {
  if (const std::shared_ptr<EventHub::Impl> hub = state_->hub.lock()) hub->forget(state_);
  MutexLock lock(state_->mu);
  state_->gone = true;
  state_->called.wait(lock, [&]() TRAINYARD_REQUIRES(state_->mu) { return !state_->calling; });
}

Result<Watcher::Next> Watcher::next(int32_t count_max) {
  for (;;) {
    int64_t cursor = 0;
    {
      const MutexLock lock(state_->mu);
      cursor = state_->cursor;
    }
    ASSIGN_OR_RETURN(EventBatch batch,
                     state_->jobs.read_events(state_->job_uid, cursor, count_max));
    const MutexLock lock(state_->mu);
    Next next;
    next.oldest_seq = batch.oldest_seq;
    next.newest_seq = batch.newest_seq;
    next.events = std::move(batch.events);
    if (!next.events.empty()) state_->cursor = next.events.back().seq();
    next.ended = is_terminal(batch.state) && state_->cursor == batch.newest_seq;
    if (!next.events.empty() || next.ended) return next;
    // Something may have been stored since the read: if so, read again, else wait for a
    // notification.
    if (state_->told_seq > state_->cursor || state_->told_removed) continue;
    state_->armed = true;
    return next;
  }
}

EventHub::EventHub(Store& store) : jobs_(store.jobs()), impl_(std::make_shared<Impl>()) {
  store.observe([impl = impl_](std::span<const JobChange> changes) { impl->tell(changes); });
  impl_->thread = std::jthread([impl = impl_.get()](std::stop_token stop) { impl->run(stop); });
}

EventHub::~EventHub() {
  impl_->thread.request_stop();
  impl_->thread.join();
}

Result<std::unique_ptr<Watcher>> EventHub::watch(const std::string& job_uid, int64_t after,
                                                 std::function<void()> on_ready) {
  // Registered before the check, so that no commit is missed.
  auto state = std::make_shared<Watcher::State>(impl_, jobs_, job_uid, after, std::move(on_ready));
  {
    const MutexLock lock(impl_->mu);
    impl_->watchers[job_uid].push_back(state);
  }
  std::unique_ptr<Watcher> watcher(new Watcher(std::move(state)));
  ASSIGN_OR_RETURN(const EventBatch probe, jobs_.read_events(job_uid, after, 0));
  (void)probe;
  return watcher;
}

}  // namespace trainyard::server
