#include "server/cluster/clusters.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "server/cluster/end_watch.h"
#include "server/config/log.h"
#include "server/scheduler/retry.h"
#include "src/base/check.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

constexpr int64_t kSecondUs = 1'000'000;
constexpr int64_t kFindAgainUs = 5 * kSecondUs;
/// How long after an unconfirmed submission the job may still appear.
constexpr int64_t kUnansweredUs = 60 * kSecondUs;
constexpr int32_t kNotFoundMax = 2;  // failed searches before it is submitted again
/// If an attempt has nodes for this long but no worker attaches, something is wrong there and the
/// attempt is withdrawn.
constexpr int64_t kEnrolUs = 900 * kSecondUs;
/// A worker whose outcome is stored ends by itself. After this time its allocation is withdrawn.
constexpr int64_t kLeftGraceUs = 60 * kSecondUs;
constexpr int64_t kPollLongestUs = 60 * kSecondUs;
/// Pauses between the jobs that are tried on a cluster that refuses its profile. The pause doubles,
/// starting with the first value.
constexpr int64_t kRefusedFirstUs = 15 * kSecondUs;
constexpr int64_t kRefusedLongestUs = 600 * kSecondUs;
/// Queries load the cluster, so they take at most about a tenth of the time.
constexpr int64_t kPauseFactor = 10;

using Key = std::pair<std::string, int32_t>;  // uid, attempt

EndRules rules_of(const ClusterConfig& config) {
  EndRules rules;
  rules.lease_us = int64_t{config.lease_seconds} * kSecondUs;
  return rules;
}

enum class Stage : uint8_t { kToSubmit, kToFind, kKnown };

struct Live {
  ClusterAttempt attempt;
  EndWatch watch;
  Stage stage = Stage::kToSubmit;
  PlacementHandle handle = {};
  Sighting sight = {};
  Fate fate = Fate::kUnknown;
  std::string trouble = {};                          // why its state is not known at the moment
  int64_t due_us = 0;                                // when kToSubmit or kToFind is due next
  int64_t submitted_us = 0;                          // 0: not submitted by this daemon
  int32_t not_found = 0;                             // failed searches in a row
  bool withdrawn = false;                            // its end is to be requested
  bool asked = false;                                // its end was requested since the last query
  std::optional<int64_t> granted_us = std::nullopt;  // when it got its nodes
  std::optional<int64_t> left_us = std::nullopt;     // when its outcome was stored
};

}  // namespace

struct Clusters::Runner {
  Runner(Supervisor& s, const Clock& c, Cluster p, std::function<void()> f)
      : supervisor(s), clock(c), cluster(std::move(p)), changed(std::move(f)) {}

  void run();
  void check();
  void turn();  // does all work that is due now
  bool is_stopping() {
    const MutexLock lock(mu);
    return stopping;
  }
  /// Returns the time at which the next work is due, such as a query; nothing if there is none.
  std::optional<int64_t> due_us() TRAINYARD_REQUIRES(mu);
  /// Returns the keys in `pending` whose attempts pass `test`.
  std::vector<Key> keys(const std::function<bool(const Live&)>& test);
  void submit(const Key& key);
  void find(const Key& key);
  void withdraw(const Key& key);
  void query_all();
  void judge(const Key& key);
  /// Calls `change` on the attempt's record, if there still is one.
  void with(const Key& key, const std::function<void(Live&)>& change);
  std::optional<Live> copy(const Key& key);
  void known(const Key& key, const PlacementHandle& handle);
  /// Removes the record of an attempt that has certainly ended, and informs the supervisor.
  void finish(const Key& key, TaskEnd end);
  /// Returns whether the cluster reports nodes for the attempt, or its worker has attached.
  bool has_node(const Live& live) const;
  /// Updates `unplaced` and `pending` after a change of the record.
  void note(const Key& key, const Live& live) TRAINYARD_REQUIRES(mu);
  /// Returns the stored refusal while the pause after it lasts; no command is then needed.
  std::optional<SubmitAnswer> refused_already();
  void refuse(std::string text);
  ClusterSight sight_of(const Live& live) const;

  Supervisor& supervisor;
  const Clock& clock;
  const Cluster cluster;
  const std::function<void()> changed;

  mutable Mutex mu;
  CondVar wake;
  bool stopping TRAINYARD_GUARDED_BY(mu) = false;
  bool news TRAINYARD_GUARDED_BY(mu) = false;
  std::string found_at_start TRAINYARD_GUARDED_BY(mu);
  std::string refused_text TRAINYARD_GUARDED_BY(mu);  // empty: the cluster accepts jobs
  int32_t refusals TRAINYARD_GUARDED_BY(mu) = 0;      // consecutive refusals
  int64_t refused_until_us TRAINYARD_GUARDED_BY(mu) = 0;
  std::map<Key, Live> live TRAINYARD_GUARDED_BY(mu);
  // The keys in `live` whose attempts have no node yet. They are few: waiting_max limits them.
  std::set<Key> unplaced TRAINYARD_GUARDED_BY(mu);
  // The keys of attempts that are to be submitted, found or withdrawn, so that a new attempt does
  // not require a scan of all running ones.
  std::set<Key> pending TRAINYARD_GUARDED_BY(mu);
  int64_t next_query_us = 0;  // used only by the thread
  std::jthread thread;
};

void Clusters::Runner::run() {
  check();
  for (;;) {
    {
      MutexLock lock(mu);
      const auto ready = [this]() TRAINYARD_REQUIRES(mu) { return stopping || news; };
      if (const std::optional<int64_t> due = due_us()) {
        const int64_t wait_us = std::max<int64_t>(0, *due - clock.steady_us());
        wake.wait_for(lock, std::chrono::microseconds(wait_us), ready);
      } else {
        wake.wait(lock, ready);
      }
      if (stopping) return;
      news = false;
    }
    try {
      turn();
    } catch (const std::exception& e) {
      spdlog::error("event=cluster_fault {} {}", kv("cluster", cluster.config.name),
                    kv("what", e.what()));
      std::this_thread::sleep_for(std::chrono::seconds(1));  // the next turn tries again
    }
  }
}

void Clusters::Runner::check() {
  PlacementCheck found = cluster.placement->check();
  spdlog::info("event=cluster_checked {} {}", kv("cluster", cluster.config.name),
               kv("found", found.text));
  {
    const MutexLock lock(mu);
    found_at_start = std::move(found.text);
  }
  if (!found.refused.empty()) refuse(std::move(found.refused));
}

void Clusters::Runner::turn() {
  const int64_t now = clock.steady_us();
  const auto due = [&](Stage stage) {
    return keys([&](const Live& l) { return l.stage == stage && l.due_us <= now; });
  };
  const auto each = [&](const std::vector<Key>& keys_now, void (Runner::*act)(const Key&)) {
    for (const Key& key : keys_now) {
      if (is_stopping()) return;  // each call takes a command's time; the next daemon continues
      (this->*act)(key);
    }
  };
  each(due(Stage::kToSubmit), &Runner::submit);
  each(due(Stage::kToFind), &Runner::find);
  const auto to_withdraw = [](const Live& l) {
    return l.stage == Stage::kKnown && l.withdrawn && !l.asked;
  };
  each(keys(to_withdraw), &Runner::withdraw);
  if (!is_stopping() && clock.steady_us() >= next_query_us) query_all();
}

std::optional<int64_t> Clusters::Runner::due_us() {
  std::optional<int64_t> next;
  size_t unknown = 0;
  for (const Key& key : pending) {
    const Live& l = live.at(key);
    // The next turn, which `news` triggers, withdraws such an attempt: it sets no time to wake up.
    if (l.stage == Stage::kKnown) continue;
    ++unknown;
    next = std::min(next.value_or(l.due_us), l.due_us);
  }
  if (live.size() > unknown) next = std::min(next.value_or(next_query_us), next_query_us);
  return next;
}

std::vector<Key> Clusters::Runner::keys(const std::function<bool(const Live&)>& test) {
  std::vector<Key> found;
  const MutexLock lock(mu);
  for (const Key& key : pending) {
    if (test(live.at(key))) found.push_back(key);
  }
  return found;
}

void Clusters::Runner::with(const Key& key, const std::function<void(Live&)>& change) {
  const MutexLock lock(mu);
  const auto it = live.find(key);
  if (it == live.end()) return;
  change(it->second);
  note(key, it->second);
}

std::optional<Live> Clusters::Runner::copy(const Key& key) {
  std::optional<Live> found;
  with(key, [&](Live& l) { found = l; });
  return found;
}

void Clusters::Runner::submit(const Key& key) {
  const std::optional<Live> l = copy(key);
  if (!l) return;
  TRAINYARD_CHECK(l->stage == Stage::kToSubmit,
                  l->attempt.job + ": its attempt may already be in the cluster");
  if (l->withdrawn || l->left_us) return finish(key, {});  // the cluster has no such job
  std::optional<SubmitAnswer> known_answer = refused_already();
  const SubmitAnswer answer =
      known_answer ? *std::move(known_answer) : cluster.placement->submit(l->attempt.intent);
  if (const auto* submitted = std::get_if<Submitted>(&answer)) return known(key, submitted->handle);
  if (const auto* refused = std::get_if<SubmitRefused>(&answer)) {
    using enum SubmitRefused::Cause;
    if (refused->cause == kCluster && !refused_already()) refuse(refused->text);
    TaskEnd end;
    end.start_error =
        make_error(refused->cause == kRequest   ? ErrorCode::kInvalidArgument
                   : refused->cause == kCluster ? ErrorCode::kFailedPrecondition
                                                : ErrorCode::kUnavailable,
                   kClusterRefused,
                   "the cluster " + cluster.config.name + " refused the job" +
                       (refused->cause == kNow ? " for now: " : ": ") + refused->text);
    return finish(key, std::move(end));
  }
  const std::string& text = std::get<SubmitUnknown>(answer).text;
  spdlog::warn("event=cluster_not_responding {} {} {}", kv("cluster", cluster.config.name),
               kv("job", l->attempt.job), kv("message", text));
  with(key, [&](Live& live_now) {
    live_now.stage = Stage::kToFind;
    live_now.trouble = "the cluster did not answer: " + text;
    live_now.submitted_us = clock.steady_us();
    live_now.due_us = live_now.submitted_us + kFindAgainUs;
    live_now.not_found = 0;
  });
}

void Clusters::Runner::find(const Key& key) {
  const std::optional<Live> l = copy(key);
  if (!l) return;
  const Result<std::optional<PlacementHandle>> found =
      cluster.placement->find(l->attempt.intent.name);
  const int64_t now = clock.steady_us();
  if (found.ok() && found->has_value()) return known(key, **found);
  const bool none = found.ok() && l->not_found + 1 >= kNotFoundMax &&
                    (l->submitted_us == 0 || now - l->submitted_us >= kUnansweredUs);
  with(key, [&](Live& live_now) {
    live_now.due_us = now + kFindAgainUs;
    if (!found.ok()) {
      live_now.trouble = "the cluster does not answer: " + found.error().message;
      return;
    }
    ++live_now.not_found;
    // submit() uses the same name again, or ends the attempt if it was withdrawn.
    if (none) live_now.stage = Stage::kToSubmit;
  });
  if (none) submit(key);
}

std::optional<SubmitAnswer> Clusters::Runner::refused_already() {
  const MutexLock lock(mu);
  if (refused_text.empty() || clock.steady_us() >= refused_until_us) return std::nullopt;
  return SubmitRefused{refused_text, SubmitRefused::Cause::kCluster};
}

void Clusters::Runner::refuse(std::string text) {
  const MutexLock lock(mu);
  refusals = std::min(refusals + 1, 10);  // the pause reaches its maximum before this count
  const int64_t pause_us = std::min(kRefusedLongestUs, kRefusedFirstUs << (refusals - 1));
  refused_until_us = clock.steady_us() + pause_us;
  refused_text = std::move(text);
  spdlog::warn("event=cluster_refused {} pause_s={} {}", kv("cluster", cluster.config.name),
               pause_us / kSecondUs, kv("message", refused_text));
}

void Clusters::Runner::known(const Key& key, const PlacementHandle& handle) {
  std::function<void(std::string)> found;
  bool opens = false;
  {
    const MutexLock lock(mu);
    const auto it = live.find(key);
    if (it != live.end()) {
      Live& l = it->second;
      opens = l.stage == Stage::kToSubmit && !refused_text.empty();
      l.stage = Stage::kKnown;
      l.handle = handle;
      l.trouble.clear();
      note(key, l);
      found = l.attempt.found;
    }
    if (opens) {
      refused_text.clear();
      refusals = 0;
    }
  }
  spdlog::info("event=cluster_job_submitted {} {} {}", kv("cluster", cluster.config.name),
               kv("name", handle.name), kv("handle", handle.id));
  if (found) found(handle.id);
  if (opens) changed();
  // Query the state of the new attempt soon.
  next_query_us = std::min(next_query_us, clock.steady_us() + kSecondUs);
}

void Clusters::Runner::withdraw(const Key& key) {
  const std::optional<Live> l = copy(key);
  if (!l) return;
  const Status asked = cluster.placement->withdraw(l->handle);
  with(key, [&](Live& live_now) {
    live_now.asked = true;  // requested again after the next query if it still exists
    if (!asked.ok()) live_now.trouble = asked.error().message;
  });
  next_query_us = std::min(next_query_us, clock.steady_us() + kSecondUs);
}

void Clusters::Runner::query_all() {
  std::vector<Key> asked;
  std::vector<PlacementHandle> handles;
  {
    const MutexLock lock(mu);
    for (const auto& [key, l] : live) {
      if (l.stage != Stage::kKnown) continue;
      asked.push_back(key);
      handles.push_back(l.handle);
    }
  }
  const int64_t begin = clock.steady_us();
  const int64_t rest = int64_t{cluster.config.poll_seconds} * kSecondUs;
  next_query_us = begin + rest;
  if (asked.empty()) return;
  const Result<std::vector<Sighting>> seen = cluster.placement->observe(handles);
  const int64_t now = clock.steady_us();
  next_query_us =
      now + std::clamp((now - begin) * kPauseFactor, rest, std::max(rest, kPollLongestUs));
  std::unordered_map<std::string_view, const Sighting*> by_name;
  if (seen.ok()) {
    for (const Sighting& sighting : *seen) by_name.emplace(sighting.handle.name, &sighting);
  } else {
    spdlog::warn("event=cluster_not_responding {} {}", kv("cluster", cluster.config.name),
                 kv("message", seen.error().message));
  }
  for (const Key& key : asked) {
    with(key, [&](Live& l) {
      const auto sighting = by_name.find(l.handle.name);
      l.asked = false;
      if (!seen.ok()) {
        l.trouble = "the cluster does not answer: " + seen.error().message;
        l.watch.saw_nothing();
      } else if (sighting == by_name.end()) {
        l.watch.saw_nothing();
      } else {
        l.trouble.clear();
        l.sight = *sighting->second;
        if (!l.sight.handle.id.empty()) l.handle = l.sight.handle;
        l.watch.saw(l.sight, now);
      }
    });
    judge(key);
  }
}

void Clusters::Runner::judge(const Key& key) {
  Verdict verdict;
  PlacementHandle handle;
  std::string how;
  bool has_come = false;
  {
    const MutexLock lock(mu);
    const auto it = live.find(key);
    if (it == live.end()) return;
    Live& l = it->second;
    const std::optional<int64_t> silent_ms = supervisor.silent_ms(l.attempt.intent.task);
    const int64_t now = clock.steady_us();
    if (silent_ms && !l.left_us) l.watch.heard(now - *silent_ms * 1000);
    verdict = l.watch.verdict(now);
    has_come = verdict.fate == Fate::kGranted && l.fate != Fate::kGranted;
    l.fate = verdict.fate;
    if (verdict.fate == Fate::kGranted && !l.granted_us) l.granted_us = now;
    const bool no_worker = !silent_ms && l.granted_us && now - *l.granted_us >= kEnrolUs;
    const bool lingers = l.left_us && now - *l.left_us >= kLeftGraceUs;
    l.withdrawn |= no_worker || lingers;
    note(key, l);
    if (verdict.fate == Fate::kOver) {
      handle = l.handle;
      how = l.sight.how;
    }
  }
  if (has_come) changed();
  if (verdict.fate != Fate::kOver) return;
  // End what may remain under its name: a second submission that waits, or one that an
  // administrator has restarted.
  (void)cluster.placement->withdraw(handle);
  TaskEnd end;
  end.remote_end = RemoteEnd{std::move(how), verdict.why};
  if (const std::string more = cluster.placement->explain(handle); !more.empty()) {
    end.remote_end->text += "; " + more;
  }
  finish(key, std::move(end));
}

void Clusters::Runner::finish(const Key& key, TaskEnd end) {
  std::string task;
  bool left = false;
  {
    const MutexLock lock(mu);
    const auto it = live.find(key);
    if (it == live.end()) return;
    task = it->second.attempt.intent.task;
    left = it->second.left_us.has_value();
    live.erase(it);
    unplaced.erase(key);
    pending.erase(key);
  }
  if (!left) supervisor.ended_remote(task, std::move(end));
  changed();
}

void Clusters::Runner::note(const Key& key, const Live& l) {
  const auto keep = [&](std::set<Key>& in, bool is) {
    if (is) {
      in.insert(key);
    } else {
      in.erase(key);
    }
  };
  keep(unplaced, l.fate != Fate::kGranted && !l.left_us);
  keep(pending, l.stage != Stage::kKnown || (l.withdrawn && !l.asked));
}

bool Clusters::Runner::has_node(const Live& l) const {
  return l.fate == Fate::kGranted || supervisor.silent_ms(l.attempt.intent.task).has_value();
}

ClusterSight Clusters::Runner::sight_of(const Live& l) const {
  ClusterSight sight;
  sight.uid = l.attempt.uid;
  sight.job = l.attempt.job;
  sight.project = l.attempt.project;
  sight.owner = l.attempt.owner;
  sight.priority = l.attempt.priority;
  sight.handle = l.handle.id;
  sight.granted = has_node(l);
  sight.nodes = l.sight.nodes;
  sight.start_estimate_us = l.sight.start_estimate_us;
  sight.rest = l.attempt.rest;
  sight.reason = !l.trouble.empty()            ? l.trouble
                 : l.stage == Stage::kToSubmit ? "it is being submitted"
                 : l.stage == Stage::kToFind   ? "its submission is being verified"
                                               : l.sight.reason;
  return sight;
}

Clusters::Clusters(Supervisor& supervisor, const Clock& clock, std::vector<Cluster> clusters,
                   std::function<void()> changed) {
  for (Cluster& cluster : clusters) {
    runners_.push_back(std::make_unique<Runner>(supervisor, clock, std::move(cluster), changed));
  }
}

Clusters::~Clusters() { stop(); }

void Clusters::start() {
  for (const auto& r : runners_) {
    r->thread = std::jthread([runner = r.get()] { runner->run(); });
  }
}

std::optional<int64_t> Clusters::turn() {
  std::optional<int64_t> next;
  for (const auto& r : runners_) {
    r->turn();
    const MutexLock lock(r->mu);
    const std::optional<int64_t> due = r->due_us();
    if (due) next = std::min(next.value_or(*due), *due);
  }
  return next;
}

void Clusters::stop() {
  for (const auto& r : runners_) {
    const MutexLock lock(r->mu);
    r->stopping = true;
    r->wake.notify_all();
  }
  for (const auto& r : runners_) r->cluster.placement->stop();
  for (const auto& r : runners_) {
    if (r->thread.joinable()) r->thread.join();
  }
}

void Clusters::submit(const std::string& cluster, ClusterAttempt attempt) {
  const auto found = std::ranges::find_if(
      runners_, [&](const auto& r) { return r->cluster.config.name == cluster; });
  TRAINYARD_CHECK(found != runners_.end(), attempt.job + ": there is no cluster " + cluster);
  TRAINYARD_CHECK(!attempt.intent.name.empty(), attempt.job + ": the attempt has no name");
  Runner& r = **found;
  const Key key{attempt.uid, attempt.attempt};
  const bool attached = r.supervisor.silent_ms(attempt.intent.task).has_value();
  Live l{.attempt = std::move(attempt),
         .watch = EndWatch(rules_of(r.cluster.config), r.clock.steady_us(), attached)};
  l.handle = {l.attempt.handle, l.attempt.intent.name};
  if (l.attempt.may_exist) l.stage = Stage::kToFind;
  if (!l.attempt.handle.empty()) l.stage = Stage::kKnown;
  const MutexLock lock(r.mu);
  const auto [live, is_new] = r.live.emplace(key, std::move(l));
  TRAINYARD_CHECK(is_new, live->second.attempt.job + ": an attempt is submitted twice");
  r.note(key, live->second);
  r.news = true;
  r.wake.notify_all();
}

void Clusters::withdraw(const std::string& cluster, const std::string& uid, int32_t attempt) {
  for (const auto& r : runners_) {
    if (r->cluster.config.name != cluster) continue;
    r->with({uid, attempt}, [](Live& l) { l.withdrawn = true; });
    const MutexLock lock(r->mu);
    r->news = true;
    r->wake.notify_all();
  }
}

void Clusters::forget(const std::string& cluster, const std::string& uid, int32_t attempt) {
  for (const auto& r : runners_) {
    if (r->cluster.config.name != cluster) continue;
    r->with({uid, attempt}, [&](Live& l) { l.left_us = r->clock.steady_us(); });
  }
}

int32_t Clusters::waiting(const std::string& cluster) const {
  int32_t count = 0;
  for (const auto& r : runners_) {
    if (r->cluster.config.name != cluster) continue;
    const MutexLock lock(r->mu);
    for (const Key& key : r->unplaced) count += r->has_node(r->live.at(key)) ? 0 : 1;
  }
  return count;
}

std::vector<ClusterSight> Clusters::sights(const std::string& cluster) const {
  std::vector<ClusterSight> sights;
  for (const auto& r : runners_) {
    if (r->cluster.config.name != cluster) continue;
    const MutexLock lock(r->mu);
    for (const auto& [key, l] : r->live) {
      if (!l.left_us) sights.push_back(r->sight_of(l));
    }
  }
  return sights;
}

std::optional<ClusterSight> Clusters::find(const std::string& uid) const {
  for (const auto& r : runners_) {
    const MutexLock lock(r->mu);
    for (auto it = r->live.lower_bound({uid, 0}); it != r->live.end() && it->first.first == uid;
         ++it) {
      if (!it->second.left_us) return r->sight_of(it->second);
    }
  }
  return std::nullopt;
}

std::optional<ClusterRefusal> Clusters::refusal(const std::string& cluster) const {
  for (const auto& r : runners_) {
    if (r->cluster.config.name != cluster) continue;
    const MutexLock lock(r->mu);
    if (r->refused_text.empty()) return std::nullopt;
    return ClusterRefusal{r->refused_text,
                          std::max<int64_t>(0, r->refused_until_us - r->clock.steady_us())};
  }
  return std::nullopt;
}

std::string Clusters::note(const std::string& cluster) const {
  for (const auto& r : runners_) {
    if (r->cluster.config.name != cluster) continue;
    const MutexLock lock(r->mu);
    return r->found_at_start;
  }
  return {};
}

}  // namespace trainyard::server
