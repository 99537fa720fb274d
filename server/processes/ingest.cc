#include "server/processes/ingest.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "server/config/log.h"
#include "server/processes/scratch.h"
#include "server/processes/worker_sandbox.h"
#include "src/base/check.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

constexpr int kTriesMax = 3;  // tries of an ingest whose worker was lost
constexpr int64_t kIngestTimeMaxMs = int64_t{6} * 3600 * 1000;
// Concurrent ingests. A large one may take minutes, and a small table must not wait for it.
constexpr int kIngestsMax = 4;
constexpr int kLargeIngestsMax = 3;
constexpr int kIngestsOfACallerMax = 3;
constexpr int kLargeIngestsOfACallerMax = 2;
constexpr int64_t kStopGraceMs = 1000;
constexpr int64_t kSmallBytesMax = int64_t{8} << 20;  // total size of a small ingest's sources

int64_t folder_bytes(const std::filesystem::path& folder) {
  int64_t bytes = 0;
  std::error_code ec;
  for (std::filesystem::directory_iterator it(folder, ec), end; !ec && it != end;
       it.increment(ec)) {
    std::error_code no_size;
    const auto size = it->file_size(no_size);
    if (!no_size) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

struct IngestRunner::Impl : std::enable_shared_from_this<IngestRunner::Impl> {
  Impl(Store& s, Supervisor& sup, Files& f, StatePaths p, std::vector<std::filesystem::path> roots,
       const Clock& c, int64_t unattended_ms)
      : store(s),
        supervisor(sup),
        files(f),
        paths(std::move(p)),
        allowed_roots(std::move(roots)),
        clock(c),
        unattended_us(unattended_ms * 1000) {}

  struct Item {
    Dataset dataset;
    std::string caller;
    std::vector<std::string> stamps;  // stamps of the server's own files among the sources
    bool small = false;
    int tries = 0;
  };
  struct Running {
    std::string task;  // empty until it is started
    std::string caller;
    bool small = false;
    bool gives_way = false;  // stopped, and queued again when it has ended
    bool cancelled = false;  // stopped for good
  };

  /// Returns what the dataset's worker may do, and makes the folder in which it may write.
  v1::WorkerSandbox sandbox_of(const Dataset& dataset);
  bool is_small(const Dataset& dataset) const;
  bool has_place(const Item& item) const TRAINYARD_REQUIRES(mu);
  bool is_unattended(const std::string& digest) const TRAINYARD_REQUIRES(mu);
  std::deque<Item>::iterator find_next() TRAINYARD_REQUIRES(mu);
  /// Returns the task of an unattended ingest in whose slot this item could run, and marks it;
  /// empty if there is none.
  std::string make_way_for(const Item& item) TRAINYARD_REQUIRES(mu);
  bool start_next();
  void start_all() {
    while (start_next()) {
    }
  }
  void task_ended(Item item, bool again);
  /// Forgets when a client asked after an ingest that has ended, unless it waits again.
  void forget(const std::string& digest) TRAINYARD_REQUIRES(mu) {
    const bool waits = std::ranges::any_of(
        waiting, [&](const Item& item) { return item.dataset.digest == digest; });
    if (!waits) asked_us.erase(digest);
  }
  void fail(const std::string& digest, const std::string& reason, const std::string& message);

  Store& store;
  Supervisor& supervisor;
  Files& files;
  const StatePaths paths;
  const std::vector<std::filesystem::path> allowed_roots;
  const Clock& clock;
  const int64_t unattended_us;

  Mutex mu;
  std::deque<Item> waiting TRAINYARD_GUARDED_BY(mu);  // at most as many as there are INGESTING rows
  std::map<std::string, Running> running TRAINYARD_GUARDED_BY(mu);  // by digest
  // When a client last asked after a waiting or running ingest, by digest.
  std::map<std::string, int64_t> asked_us TRAINYARD_GUARDED_BY(mu);
  bool draining TRAINYARD_GUARDED_BY(mu) = false;
};

namespace {

/// The owner of an ingest's task.
class IngestTask final : public TaskOwner {
 public:
  IngestTask(Store& store, Supervisor& supervisor, Files& files, const StatePaths& paths,
             const std::vector<std::filesystem::path>& allowed_roots, Dataset dataset,
             std::vector<std::string> stamps, std::function<void(bool again)> gone)
      : store_(store),
        supervisor_(supervisor),
        files_(files),
        paths_(paths),
        allowed_roots_(allowed_roots),
        dataset_(std::move(dataset)),
        stamps_(std::move(stamps)),
        gone_(std::move(gone)) {}

  Result<v1::Assignment> assignment() override {
    v1::Assignment assignment;
    v1::IngestTask& task = *assignment.mutable_ingest();
    *task.mutable_spec() = dataset_.spec;
    for (const v1::DatasetSource& source : dataset_.spec.sources()) {
      task.add_source_paths(paths_.upload(source.sha256()).string());
    }
    task.mutable_stamps()->Assign(stamps_.begin(), stamps_.end());
    task.set_output_dir(written().string());
    for (const std::filesystem::path& root : allowed_roots_) task.add_allowed_roots(root.string());
    return assignment;
  }

  void report(const v1::WorkerReport& report, Done<void> done) override {
    if (!report.has_outcome()) return done({});
    {
      const MutexLock lock(mu_);
      if (over_) {
        return done(make_error(ErrorCode::kAborted, "ATTEMPT_FENCED", "this ingest has ended"));
      }
      storing_ = true;
    }
    // The caller owns the task, and with it this object, until `done` has run.
    store(report.outcome(), [this, done = std::move(done)](Status stored) {
      TaskHold hold;
      {
        const MutexLock lock(mu_);
        storing_ = false;
        stored_ = stored_ || stored.ok();
        hold = std::move(hold_);
      }
      if (hold) leave(std::move(hold));
      done(std::move(stored));
    });
  }

  void ended(const TaskEnd& end, TaskHold hold) override {
    {
      const MutexLock lock(mu_);
      over_ = true;
      if (end.start_error && end.start_error->reason == "SANDBOX_UNAVAILABLE") {
        refusal_ = end.start_error;
      }
      // The process may end while its outcome is being stored. The files of a dataset that becomes
      // READY must stay, so leave() is called only after the store has replied.
      if (storing_) {
        hold_ = std::move(hold);
        return;
      }
    }
    leave(std::move(hold));
  }

 private:
  void leave(TaskHold hold) {
    supervisor_.in_background([this, hold = std::move(hold)] {
      bool stored = false;
      std::optional<Error> refusal;
      {
        const MutexLock lock(mu_);
        stored = stored_;
        refusal = refusal_;
      }
      (void)files_.remove_all(scratch());
      if (!stored) (void)files_.remove_all(folder());
      if (!refusal) return gone_(!stored);
      // Another try would be refused too.
      fail(refusal->reason, refusal->message, [this, hold](const Status&) { gone_(false); });
    });
  }

  void store(const v1::Outcome& outcome, Done<void> done) {
    if (outcome.kind() == v1::Outcome::SUCCEEDED) {
      if (Status s = take_result(files_, written(), folder()); !s.ok()) {
        if (is_of_file_error(s.error().reason)) return done(std::move(s));
        return fail("INTERNAL", paths_.hide(s.error().message), std::move(done));
      }
      std::error_code ec;
      if (!std::filesystem::exists(folder() / "digest", ec)) {
        return fail("INTERNAL", "the ingest reported success but created no dataset",
                    std::move(done));
      }
      return store_.datasets().set_ready(dataset_.digest, outcome.schema(), folder_bytes(folder()),
                                         std::move(done));
    }
    if (outcome.kind() == v1::Outcome::STOPPED) return done({});
    fail(outcome.reason().empty() ? "INTERNAL" : outcome.reason(), paths_.hide(outcome.message()),
         std::move(done));
  }

  std::filesystem::path folder() const { return paths_.dataset(dataset_.digest); }
  std::filesystem::path scratch() const { return paths_.scratch(dataset_.digest); }
  /// Returns where the worker writes the dataset.
  std::filesystem::path written() const { return scratch() / "dataset"; }
  void fail(const std::string& reason, const std::string& message, Done<void> done) {
    store_.datasets().set_failed(dataset_.digest, reason, message, std::move(done));
  }

  Store& store_;
  Supervisor& supervisor_;
  Files& files_;
  const StatePaths& paths_;
  const std::vector<std::filesystem::path>& allowed_roots_;
  const Dataset dataset_;
  const std::vector<std::string> stamps_;
  const std::function<void(bool again)> gone_;
  Mutex mu_;
  // Set if the process has ended while its outcome is being stored.
  TaskHold hold_ TRAINYARD_GUARDED_BY(mu_);
  bool storing_ TRAINYARD_GUARDED_BY(mu_) = false;  // an outcome is being stored
  bool stored_ TRAINYARD_GUARDED_BY(mu_) = false;
  // The process has ended, so later outcomes are refused.
  bool over_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::optional<Error> refusal_ TRAINYARD_GUARDED_BY(mu_);  // why no worker could be started
};

}  // namespace

v1::WorkerSandbox IngestRunner::Impl::sandbox_of(const Dataset& dataset) {
  const std::filesystem::path scratch = paths.scratch(dataset.digest);
  if (Status s = make_scratch(files, scratch); !s.ok()) {  // the worker's error says more
    spdlog::warn("event=scratch_not_created {}", kv("message", s.error().message));
  }
  v1::WorkerSandbox sandbox = parsing_sandbox();
  add_scratch(sandbox, scratch);
  for (const v1::DatasetSource& source : dataset.spec.sources()) {
    if (source.server_path().empty()) add_readable(sandbox, paths.upload(source.sha256()));
  }
  add_server_sources(sandbox, dataset.spec);
  sandbox.set_learns_tokenizer(learns_tokenizer(dataset.spec));
  return sandbox;
}

bool IngestRunner::Impl::is_small(const Dataset& dataset) const {
  int64_t bytes = 0;
  for (const v1::DatasetSource& source : dataset.spec.sources()) {
    if (!source.server_path().empty()) return false;  // its size may change until it is read
    std::error_code ec;
    const auto size = std::filesystem::file_size(paths.upload(source.sha256()), ec);
    if (!ec) bytes += static_cast<int64_t>(size);
  }
  return bytes <= kSmallBytesMax;
}

bool IngestRunner::Impl::has_place(const Item& item) const {
  if (std::ssize(running) >= kIngestsMax || running.contains(item.dataset.digest)) return false;
  int large = 0, of_caller = 0, large_of_caller = 0;
  for (const auto& [digest, other] : running) {
    const bool same = other.caller == item.caller;
    large += other.small ? 0 : 1;
    of_caller += same ? 1 : 0;
    large_of_caller += same && !other.small ? 1 : 0;
  }
  if (of_caller >= kIngestsOfACallerMax) return false;
  return item.small || (large < kLargeIngestsMax && large_of_caller < kLargeIngestsOfACallerMax);
}

bool IngestRunner::Impl::is_unattended(const std::string& digest) const {
  const auto it = asked_us.find(digest);
  return it == asked_us.end() || clock.steady_us() - it->second >= unattended_us;
}

/// Returns the first waiting ingest that can start, unattended ones last.
std::deque<IngestRunner::Impl::Item>::iterator IngestRunner::Impl::find_next() {
  const auto attended = std::ranges::find_if(waiting, [this](const Item& i) TRAINYARD_REQUIRES(mu) {
    return has_place(i) && !is_unattended(i.dataset.digest);
  });
  if (attended != waiting.end()) return attended;
  return std::ranges::find_if(
      waiting, [this](const Item& i) TRAINYARD_REQUIRES(mu) { return has_place(i); });
}

std::string IngestRunner::Impl::make_way_for(const Item& item) {
  for (auto it = running.begin(); it != running.end(); ++it) {
    auto& [digest, other] = *it;
    if (other.gives_way || other.cancelled) return "";  // a slot becomes free already
    if (other.task.empty() || !is_unattended(digest)) continue;
    Running without = std::move(other);
    const std::string name = digest;
    running.erase(it);
    const bool helps = has_place(item);
    without.gives_way = helps;
    const std::string task = without.task;
    it = running.emplace(name, std::move(without)).first;
    if (helps) return task;
  }
  return "";
}

/// Starts the next ingest; false if none of the waiting ones can start.
bool IngestRunner::Impl::start_next() {
  Item item;
  {
    const MutexLock lock(mu);
    if (draining) return false;
    const auto next = find_next();
    if (next == waiting.end()) return false;
    item = std::move(*next);
    waiting.erase(next);
    running[item.dataset.digest] = {.task = "", .caller = item.caller, .small = item.small};
  }
  // An earlier ingest of a dataset that was deleted meanwhile may have made this one READY.
  if (const Result<bool> ready = store.datasets().has_ready(item.dataset.digest);
      ready.ok() && *ready) {
    const MutexLock lock(mu);
    running.erase(item.dataset.digest);
    forget(item.dataset.digest);
    return true;
  }
  // Removes what an unfinished ingest has left; a complete dataset with this digest would be READY.
  (void)files.remove_all(paths.dataset(item.dataset.digest));
  Supervisor::NewTask fresh;
  fresh.sandbox = sandbox_of(item.dataset);
  fresh.kind = "ingest " + item.dataset.name();
  fresh.time_max_ms = kIngestTimeMaxMs;
  fresh.owner = std::make_shared<IngestTask>(
      store, supervisor, files, paths, allowed_roots, item.dataset, item.stamps,
      [impl = shared_from_this(), item](bool again) { impl->task_ended(item, again); });
  const MutexLock lock(mu);  // locked during start(): the task must not end before its ID is known
  if (draining) {
    running.erase(item.dataset.digest);  // the next daemon ingests it
    return false;
  }
  Running& started = running[item.dataset.digest];
  started.task = supervisor.start(std::move(fresh));
  if (started.cancelled) supervisor.stop(started.task, "cancelled", kStopGraceMs);
  return true;
}

void IngestRunner::Impl::task_ended(Item item, bool again) {
  bool give_up = false;
  {
    const MutexLock lock(mu);
    const auto ended = running.find(item.dataset.digest);
    TRAINYARD_CHECK(ended != running.end(), "an ingest ends that was not started");
    const Running was = std::move(ended->second);
    running.erase(ended);
    if (!again || was.cancelled) {
      forget(item.dataset.digest);
    } else if (was.gives_way) {
      waiting.push_back(item);
    } else if (!draining) {
      give_up = ++item.tries >= kTriesMax;
      if (!give_up) waiting.push_front(item);
      if (give_up) forget(item.dataset.digest);
    }
  }
  spdlog::info("event=ingest_ended {} again={}", kv("dataset", item.dataset.name()), again);
  if (give_up) {
    fail(item.dataset.digest, "WORKER_LOST",
         "the ingest's worker ended " + std::to_string(kTriesMax) +
             " times without an outcome; the server's log has details");
  }
  start_all();
}

void IngestRunner::Impl::fail(const std::string& digest, const std::string& reason,
                              const std::string& message) {
  store.datasets().set_failed(digest, reason, message, [digest](const Status& s) {
    if (s.ok()) return;
    spdlog::error("event=ingest_end_not_stored digest={} {}", digest,
                  kv("message", s.error().message));
  });
}

IngestRunner::IngestRunner(Store& store, Supervisor& supervisor, Files& files, StatePaths paths,
                           std::vector<std::filesystem::path> allowed_roots, const Clock& clock,
                           int64_t unattended_ms)
    : impl_(std::make_shared<Impl>(store, supervisor, files, std::move(paths),
                                   std::move(allowed_roots), clock, unattended_ms)) {}

IngestRunner::~IngestRunner() { drain(); }

void IngestRunner::enqueue(const Dataset& dataset, const std::string& caller,
                           std::vector<std::string> stamps) {
  TRAINYARD_CHECK(
      impl_->paths.holds(impl_->paths.dataset(dataset.digest)),
      "the dataset's digest '" + dataset.digest + "' does not name a folder of its own");
  {
    const MutexLock lock(impl_->mu);
    impl_->waiting.push_back({dataset, caller, std::move(stamps), impl_->is_small(dataset)});
    impl_->asked_us[dataset.digest] = impl_->clock.steady_us();
  }
  impl_->start_all();
}

void IngestRunner::asked(const std::string& digest) {
  std::string task;
  {
    const MutexLock lock(impl_->mu);
    const auto it = impl_->asked_us.find(digest);
    if (it == impl_->asked_us.end()) return;  // it has ended
    it->second = impl_->clock.steady_us();
    const auto item = std::ranges::find_if(
        impl_->waiting, [&](const Impl::Item& i) { return i.dataset.digest == digest; });
    if (item == impl_->waiting.end() || impl_->draining) return;
    task = impl_->make_way_for(*item);
  }
  if (!task.empty()) impl_->supervisor.stop(task, "gives way", kStopGraceMs);
}

void IngestRunner::cancel(const std::string& digest) {
  const auto waits = [&](const Dataset& dataset) { return dataset.digest == digest; };
  // Another dataset, perhaps of another project, may wait for the same content.
  if (const Result<std::vector<Dataset>> left = impl_->store.datasets().list_ingesting();
      left.ok() && std::ranges::any_of(*left, waits)) {
    return;
  }
  std::string task;
  {
    const MutexLock lock(impl_->mu);
    std::erase_if(impl_->waiting,
                  [&](const Impl::Item& item) { return item.dataset.digest == digest; });
    impl_->asked_us.erase(digest);
    if (const auto it = impl_->running.find(digest); it != impl_->running.end()) {
      it->second.cancelled = true;
      task = it->second.task;  // if empty, start_next() stops it
    }
  }
  if (!task.empty()) impl_->supervisor.stop(task, "cancelled", kStopGraceMs);
  // A client may have created the dataset again before this call.
  const Result<std::vector<Dataset>> datasets = impl_->store.datasets().list_ingesting();
  if (!datasets.ok()) return;
  for (const Dataset& dataset : *datasets) {
    if (waits(dataset)) enqueue(dataset);
  }
}

Status IngestRunner::recover() {
  ASSIGN_OR_RETURN(const std::vector<Dataset> datasets, impl_->store.datasets().list_ingesting());
  for (const Dataset& dataset : datasets) enqueue(dataset);
  return {};
}

void IngestRunner::drain() {
  std::vector<std::string> tasks;
  {
    const MutexLock lock(impl_->mu);
    impl_->draining = true;
    for (const auto& [digest, ingest] : impl_->running) tasks.push_back(ingest.task);
  }
  for (const std::string& task : tasks) impl_->supervisor.stop(task, "drain", kStopGraceMs);
}

}  // namespace trainyard::server
