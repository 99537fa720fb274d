#include "server/processes/ingest.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "server/config/log.h"
#include "src/base/check.h"
#include "src/base/mutex.h"

namespace trainyard::server {
namespace {

constexpr int kTriesMax = 3;  // tries of an ingest whose worker was lost
constexpr int64_t kIngestTimeMaxMs = int64_t{6} * 3600 * 1000;
// Concurrent ingests. A large one may take minutes, and a small table must not wait for it.
constexpr int kIngestsMax = 4;
constexpr int kLargeIngestsMax = 2;
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
  Impl(Store& s, Supervisor& sup, Files& f, StatePaths p, std::vector<std::filesystem::path> roots)
      : store(s), supervisor(sup), files(f), paths(std::move(p)), allowed_roots(std::move(roots)) {}

  struct Item {
    Dataset dataset;
    std::vector<std::string> stamps;  // stamps of the server's own files among the sources
    bool small = false;
    int tries = 0;
  };

  bool is_small(const Dataset& dataset) const;
  bool has_place(const Item& item) const TRAINYARD_REQUIRES(mu);
  bool start_next();
  void start_all() {
    while (start_next()) {
    }
  }
  void task_ended(Item item, bool again);
  void fail(const std::string& digest, const std::string& reason, const std::string& message);

  Store& store;
  Supervisor& supervisor;
  Files& files;
  const StatePaths paths;
  const std::vector<std::filesystem::path> allowed_roots;

  Mutex mu;
  std::deque<Item> waiting TRAINYARD_GUARDED_BY(mu);  // at most as many as there are INGESTING rows
  std::map<std::string, std::string> running TRAINYARD_GUARDED_BY(mu);  // task IDs by digest
  // Number of large ones in `running`.
  int large TRAINYARD_GUARDED_BY(mu) = 0;
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
    task.set_output_dir(folder().string());
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

  void ended(const TaskEnd&, TaskHold hold) override {
    {
      const MutexLock lock(mu_);
      over_ = true;
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
      {
        const MutexLock lock(mu_);
        stored = stored_;
      }
      if (!stored) (void)files_.remove_all(folder());
      gone_(!stored);
    });
  }

  void store(const v1::Outcome& outcome, Done<void> done) {
    if (outcome.kind() == v1::Outcome::SUCCEEDED) {
      std::error_code ec;
      if (!std::filesystem::exists(folder() / "digest", ec)) {
        return fail("INTERNAL", "the ingest reported success but created no dataset",
                    std::move(done));
      }
      return store_.datasets().set_ready(dataset_.digest, outcome.schema(), folder_bytes(folder()),
                                         std::move(done));
    }
    if (outcome.kind() == v1::Outcome::STOPPED) return done({});
    (void)files_.remove_all(folder());
    fail(outcome.reason().empty() ? "INTERNAL" : outcome.reason(), paths_.hide(outcome.message()),
         std::move(done));
  }

  std::filesystem::path folder() const { return paths_.dataset(dataset_.digest); }
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
};

}  // namespace

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
  return std::ssize(running) < kIngestsMax && (item.small || large < kLargeIngestsMax) &&
         !running.contains(item.dataset.digest);
}

/// Starts the next ingest; false if none of the waiting ones can start.
bool IngestRunner::Impl::start_next() {
  Item item;
  {
    const MutexLock lock(mu);
    if (draining) return false;
    const auto next = std::ranges::find_if(
        waiting, [this](const Item& i) TRAINYARD_REQUIRES(mu) { return has_place(i); });
    if (next == waiting.end()) return false;
    item = std::move(*next);
    waiting.erase(next);
    running[item.dataset.digest] = "";
    large += item.small ? 0 : 1;
  }
  // Removes what an unfinished ingest has left; a complete dataset with this digest would be READY.
  (void)files.remove_all(paths.dataset(item.dataset.digest));
  Supervisor::NewTask fresh;
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
  running[item.dataset.digest] = supervisor.start(std::move(fresh));
  return true;
}

void IngestRunner::Impl::task_ended(Item item, bool again) {
  bool give_up = false;
  {
    const MutexLock lock(mu);
    const bool was_running = running.erase(item.dataset.digest) == 1;
    TRAINYARD_CHECK(was_running, "an ingest ends that was not started");
    large -= item.small ? 0 : 1;
    if (again && !draining) {
      give_up = ++item.tries >= kTriesMax;
      if (!give_up) waiting.push_front(item);
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
                           std::vector<std::filesystem::path> allowed_roots)
    : impl_(std::make_shared<Impl>(store, supervisor, files, std::move(paths),
                                   std::move(allowed_roots))) {}

IngestRunner::~IngestRunner() { drain(); }

void IngestRunner::enqueue(const Dataset& dataset, std::vector<std::string> stamps) {
  TRAINYARD_CHECK(
      impl_->paths.holds(impl_->paths.dataset(dataset.digest)),
      "the dataset's digest '" + dataset.digest + "' does not name a folder of its own");
  {
    const MutexLock lock(impl_->mu);
    impl_->waiting.push_back({dataset, std::move(stamps), impl_->is_small(dataset)});
  }
  impl_->start_all();
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
    for (const auto& [digest, task] : impl_->running) tasks.push_back(task);
  }
  for (const std::string& task : tasks) impl_->supervisor.stop(task, "drain", 1000);
}

}  // namespace trainyard::server
