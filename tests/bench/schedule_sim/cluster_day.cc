#include "tests/bench/schedule_sim/cluster_day.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "server/cluster/cluster_queue.h"
#include "server/cluster/clusters.h"
#include "server/dispatch/train_task.h"
#include "server/processes/supervisor.h"
#include "server/protocol/enrolment.h"
#include "server/protocol/versions.h"
#include "server/store/store.h"
#include "server/store/wait_for.h"
#include "src/base/check.h"
#include "src/base/sha256.h"
#include "tests/bench/process_facts.h"
#include "tests/bench/schedule_sim/random.h"
#include "tests/bench/schedule_sim/trace.h"
#include "tests/server/fake_clock.h"
#include "tests/support/tiny_model.h"

namespace trainyard::sim {
namespace {

using namespace trainyard::server;
namespace fs = std::filesystem;

// Bytes of squeue's output per attempt, by the requested column widths: for attempts by name, and
// for all attempts together.
constexpr int64_t kLineBytes = 664, kLineBytesOfMany = 266, kByNameMax = 500;
constexpr int64_t kStartUs = 5 * kSecondUs;   // from getting a node to the worker's first report
constexpr int64_t kEndUs = 2 * kSecondUs;     // from the outcome to the end of the process
constexpr int64_t kKeptUs = 300 * kSecondUs;  // how long the cluster still lists an ended attempt
constexpr size_t kLatenciesMax = 1 << 20;
const std::string kCluster = "cluster";

double cpu_us() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

double wall_us() { return static_cast<double>(system_clock().steady_us()); }

int64_t rss_bytes() { return number_in("/proc/self/status", "VmRSS:") * 1024; }

class Times {
 public:
  void add(double value) {
    sum_ += value;
    ++count_;
    most_ = std::max(most_, value);
    if (values_.size() < kLatenciesMax) values_.push_back(value);
  }
  Spread spread() {
    Spread s{count_, 0, 0, most_, sum_};
    if (values_.empty()) return s;
    std::ranges::sort(values_);
    s.p50 = values_[values_.size() / 2];
    s.p99 = values_[values_.size() * 99 / 100];
    return s;
  }

 private:
  std::vector<double> values_;
  double sum_ = 0, most_ = 0;
  int64_t count_ = 0;
};

/// A simulated cluster scheduler: equal nodes, first come, first served.
class PlayedCluster final : public Placement {
 public:
  PlayedCluster(int nodes, const Clock& clock) : free_(nodes), clock_(clock) {}

  SubmitAnswer submit(const AttemptIntent& intent) override {
    Entry& entry = entries_[intent.name];
    entry.sighting.handle = {std::to_string(++last_id_), intent.name};
    entry.sighting.seen = Seen::kWaiting;
    entry.sighting.reason = "Resources";
    queue_.push_back(intent.name);
    return Submitted{entry.sighting.handle};
  }
  Result<std::vector<Sighting>> observe(std::span<const PlacementHandle> handles) override {
    std::vector<Sighting> seen;
    seen.reserve(handles.size());
    for (const PlacementHandle& handle : handles) {
      const auto found = entries_.find(handle.name);
      if (found != entries_.end()) {
        seen.push_back(found->second.sighting);
      } else {
        Sighting unseen;
        unseen.handle = handle;
        seen.push_back(unseen);
      }
    }
    ++queries;
    const int64_t line = std::ssize(seen) <= kByNameMax ? kLineBytes : kLineBytesOfMany;
    most_bytes = std::max(most_bytes, std::ssize(seen) * line);
    return seen;
  }
  Status withdraw(const PlacementHandle& handle) override {
    end(handle.name, "CANCELLED");
    return {};
  }
  Result<std::optional<PlacementHandle>> find(const std::string& name) override {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return std::optional<PlacementHandle>();
    return std::optional(found->second.sighting.handle);
  }
  std::string explain(const PlacementHandle&) override { return {}; }
  PlacementCheck check() override { return {}; }

  /// Allocates free nodes. Returns the names of the attempts that got one.
  std::vector<std::string> grant() {
    std::vector<std::string> granted;
    while (free_ > 0 && !queue_.empty()) {
      const std::string name = std::move(queue_.front());
      queue_.pop_front();
      Entry& entry = entries_[name];
      if (entry.sighting.seen != Seen::kWaiting) continue;  // withdrawn
      entry.sighting.seen = Seen::kGranted;
      entry.sighting.reason.clear();
      entry.sighting.nodes = "n" + std::to_string(free_--);
      granted.push_back(name);
    }
    return granted;
  }
  void end(const std::string& name, const std::string& how) {
    const auto found = entries_.find(name);
    if (found == entries_.end() || found->second.sighting.seen == Seen::kEnded) return;
    Entry& entry = found->second;
    if (entry.sighting.seen == Seen::kGranted) ++free_;
    entry.sighting.seen = Seen::kEnded;
    entry.sighting.how = how;
    ended_.emplace_back(clock_.steady_us() + kKeptUs, name);
  }
  /// Forgets ended attempts as Slurm's MinJobAge does.
  void forget() {
    while (!ended_.empty() && ended_.front().first <= clock_.steady_us()) {
      entries_.erase(ended_.front().second);
      ended_.pop_front();
    }
  }
  bool has_node(const std::string& name) const {
    const auto found = entries_.find(name);
    return found != entries_.end() && found->second.sighting.seen == Seen::kGranted;
  }

  int64_t queries = 0, most_bytes = 0;

 private:
  struct Entry {
    Sighting sighting;
  };
  int free_;
  const Clock& clock_;
  int64_t last_id_ = 0;
  std::unordered_map<std::string, Entry> entries_;
  std::deque<std::string> queue_;
  std::deque<std::pair<int64_t, std::string>> ended_;
};

struct NoCommands final : CommandSink {
  void send(const v1::WorkerCommand&) override {}
};

enum class Kind : uint8_t { kArrives, kComes, kEnds, kProcessEnds, kNodeFails };

struct Event {
  int64_t time_us = 0;
  int64_t order = 0;
  Kind kind = Kind::kArrives;
  std::string name;  // the attempt's name in the cluster
  bool operator>(const Event& other) const {
    return std::tie(time_us, order) > std::tie(other.time_us, other.order);
  }
};

/// Does for a cluster what the dispatcher does (server/dispatch/dispatcher.cc), on one thread.
class Day {
 public:
  explicit Day(const ClusterDayOptions& options);
  ClusterDay run();

 private:
  struct Attempt {
    std::string uid, task, name, nonce;
    int32_t number = 0;
    std::shared_ptr<TrainTask> owner;
    std::shared_ptr<NoCommands> sink;
    bool gone = false;
  };

  void submit();
  void submit_to_cluster(const StartDecision& start);
  void come(Attempt& attempt);
  void finish(Attempt& attempt);
  void fail(const std::string& name);
  void forget(const std::string& task);
  /// Moves changes from the store to the queue, carries out decisions, and lets the cluster
  /// allocate nodes, until nothing more happens at this moment.
  void settle();
  void take_changes();
  void note_gone();
  /// Waits for the supervisor's threads.
  template <typename F>
  void wait_for(F condition);
  void add(int64_t in_us, Kind kind, std::string name = {});
  int64_t life_us() { return std::max<int64_t>(60 * kSecondUs, work_us()); }
  int64_t work_us() {
    const double mean_s = 86'400 / options_.jobs_per_node_day;  // jobs just fill the nodes
    return static_cast<int64_t>(lives_.lognormal(mean_s * 0.6, 1) * kSecondUs);
  }
  template <typename T>
  T commit(const std::function<T()>& change) {
    const double begin = wall_us();
    T result = change();
    commits_.add(wall_us() - begin);
    return result;
  }
  template <typename F>
  void wait_done(F call) {
    std::mutex mu;
    std::condition_variable woken;
    std::optional<Status> answer;
    const double begin = wall_us();
    call([&](Status s) {
      const std::lock_guard lock(mu);
      answer = std::move(s);
      woken.notify_one();
    });
    std::unique_lock lock(mu);
    woken.wait(lock, [&] { return answer.has_value(); });
    commits_.add(wall_us() - begin);
    if (!answer->ok()) violate(answer->error().message);
  }
  void violate(std::string text) {
    if (day_.violations.size() < 20) day_.violations.push_back(std::move(text));
  }

  const ClusterDayOptions options_;
  FakeClock clock_;
  StatePaths paths_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Supervisor> supervisor_;
  ClusterConfig config_;
  PlayedCluster* cluster_ = nullptr;
  std::unique_ptr<Clusters> clusters_;
  std::unique_ptr<ClusterQueue> lines_;
  Shares shares_;
  std::shared_ptr<HostTrouble> trouble_ = std::make_shared<HostTrouble>();

  std::mutex mu_;  // protects the fields that other threads write
  std::condition_variable reported_;
  std::vector<JobBrief> changed_;
  std::vector<std::string> gone_;  // tasks that have ended

  std::unordered_map<std::string, Attempt> attempts_;  // by the attempt's name in the cluster
  std::unordered_map<std::string, std::string> name_of_task_;
  // values: owner, number of devices
  std::unordered_map<std::string, std::pair<std::string, int64_t>> placed_;
  std::set<std::string> waiting_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t order_ = 0, next_turn_us_ = 0;
  Random lives_, arrivals_, owners_, failures_;
  Times decide_, query_, why_, commits_;
  double job_cpu_us_ = 0;
  ClusterDay day_;
};

Day::Day(const ClusterDayOptions& options)
    : options_(options),
      paths_(options.folder),
      shares_(static_cast<int64_t>(options.half_life_hours * kHourUs)),
      lives_(options.seed, 1),
      arrivals_(options.seed, 2),
      owners_(options.seed, 3),
      failures_(options.seed, 4) {
  StoreOptions store;
  store.state_dir = options.folder;
  store.queued_jobs_max = int64_t{1} << 40;
  store.reserve_bytes = 0;
  auto opened = Store::open(store, clock_);
  TRAINYARD_CHECK(opened.ok(), "the simulation's store does not open");
  store_ = std::move(opened).value();
  store_->observe([this](std::span<const JobChange> changes) {
    const std::lock_guard lock(mu_);
    for (const JobChange& change : changes) {
      if (change.reschedules) changed_.push_back(*change.reschedules);
    }
    reported_.notify_all();
  });
  TRAINYARD_CHECK(paths_.create(local_files()).ok(), "no folders for the simulation");
  NewDataset dataset;
  dataset.project = "default";
  dataset.id = "digits";
  dataset.digest = "d1";
  TRAINYARD_CHECK(store_->datasets().create(dataset).ok(), "no dataset");
  TRAINYARD_CHECK(
      answer_of(store_->datasets(), &DatasetStore::set_ready, "d1", v1::DatasetSchema(), 1).ok(),
      "no dataset");

  SupervisorOptions supervisor;
  supervisor.log_dir = paths_.logs();
  supervisor.silence_ms = int64_t{1} << 40;  // reports between start and end are not simulated
  supervisor_ = std::make_unique<Supervisor>(supervisor, clock_);
  config_.name = kCluster;
  config_.kind = "slurm";
  config_.waiting_max = options.waiting_max;
  config_.poll_seconds = options.poll_seconds;
  config_.lease_seconds = 604'800;
  auto cluster = std::make_unique<PlayedCluster>(options.nodes, clock_);
  cluster_ = cluster.get();
  std::vector<Clusters::Cluster> clusters;
  clusters.push_back({config_, std::move(cluster)});
  clusters_ = std::make_unique<Clusters>(*supervisor_, clock_, std::move(clusters), [] {});
  lines_ = std::make_unique<ClusterQueue>(std::span(&config_, 1), *clusters_);
}

void Day::add(int64_t in_us, Kind kind, std::string name) {
  events_.push({clock_.steady_us() + in_us, ++order_, kind, std::move(name)});
}

template <typename F>
void Day::wait_for(F condition) {
  std::unique_lock lock(mu_);
  reported_.wait(lock, condition);
}

void Day::submit() {
  NewJob job;
  job.project = "default";
  job.id = "job-" + std::to_string(++day_.submitted);
  job.owner = "owner-" + std::to_string(owners_.below(options_.owners));
  job.spec.mutable_dataset()->set_name("projects/default/datasets/digits@1");
  job.spec.mutable_model()->mutable_mlp()->add_hidden(256);
  job.spec.mutable_recipe()->set_steps(10'000);
  job.spec.mutable_resources()->set_cluster(kCluster);
  job.spec.mutable_resources()->set_device(v1::Resources::CPU);
  job.spec.mutable_resources()->set_threads(8);
  job.plan.set_steps_total(10'000);
  job.plan.mutable_memory()->set_activation_bytes(1 << 20);
  const double cpu = cpu_us();
  const auto submitted = commit<Result<Job>>([&] { return store_->jobs().submit(std::move(job)); });
  job_cpu_us_ += cpu_us() - cpu;
  if (!submitted.ok()) violate(submitted.error().message);
}

void Day::take_changes() {
  std::vector<JobBrief> changes;
  {
    const std::lock_guard lock(mu_);
    changes.swap(changed_);
  }
  for (const JobBrief& job : changes) {
    const int64_t now = clock_.wall_us();
    std::optional<WaitingJob> waiting = waiting_job(job);
    if (waiting) {
      waiting_.insert(job.uid);
      lines_->put(std::move(*waiting));
    } else {
      waiting_.erase(job.uid);
      lines_->remove(job.uid);
    }
    const auto placed = placed_job(job);
    const auto before = placed_.find(job.uid);
    if (placed && before == placed_.end()) {
      shares_.change(job.owner, std::ssize(placed->devices), now);
      placed_[job.uid] = {job.owner, std::ssize(placed->devices)};
    } else if (!placed && before != placed_.end()) {
      shares_.change(before->second.first, -before->second.second, now);
      placed_.erase(before);
    }
  }
  day_.waiting_most = std::max<int64_t>(day_.waiting_most, std::ssize(waiting_));
}

void Day::submit_to_cluster(const StartDecision& start) {
  const double cpu = cpu_us();
  const Result<Job> started = commit<Result<Job>>([&] {
    return store_->jobs().start_attempt(start.uid, start.devices, "", start.reason, start.message);
  });
  if (!started.ok()) return violate(started.error().message);
  ++day_.attempts;
  Attempt attempt;
  attempt.uid = start.uid;
  attempt.number = started->attempt;
  attempt.task = start.uid + "-" + std::to_string(started->attempt);
  attempt.name = "ty-sim-" + attempt.task;
  const auto gone = [this, task = attempt.task](bool) {
    const std::lock_guard lock(mu_);
    gone_.push_back(task);
    reported_.notify_all();
  };
  TrainTaskOptions task{paths_, "d1", {}, 1, false, trouble_, false, /*is_remote=*/true};
  attempt.owner =
      std::make_shared<TrainTask>(*store_, *supervisor_, clock_, *started, std::move(task), gone);
  Supervisor::RemoteTask expected;
  expected.id = attempt.task;
  expected.kind = "train";
  expected.owner = attempt.owner;
  expected.secret_digest = sha256_hex("secret");
  expected.lease_ms = int64_t{604'800'000};
  supervisor_->add_remote(std::move(expected));
  ClusterAttempt to_submit;
  to_submit.uid = start.uid;
  to_submit.attempt = started->attempt;
  to_submit.job = started->name();
  to_submit.owner = started->owner;
  to_submit.intent.name = attempt.name;
  to_submit.intent.task = attempt.task;
  to_submit.intent.title = started->name();
  to_submit.intent.secret = std::string(64, 's');
  to_submit.intent.certificate_pem = std::string(800, 'c');
  to_submit.found = [this, uid = start.uid, number = started->attempt](const std::string& handle) {
    wait_done([&](Done<void> done) {
      store_->jobs().set_handle(uid, number, handle, "handed over as " + handle, std::move(done));
    });
  };
  name_of_task_[attempt.task] = attempt.name;
  attempts_.insert_or_assign(attempt.name, std::move(attempt));
  clusters_->submit(kCluster, std::move(to_submit));
  job_cpu_us_ += cpu_us() - cpu;
}

void Day::come(Attempt& attempt) {
  const double cpu = cpu_us();
  v1::EnrolRequest enrol;
  enrol.set_task(attempt.task);
  enrol.set_secret("secret");
  enrol.set_key(std::string(64, 'a'));
  enrol.set_protocol_min(kProtocols.oldest);
  enrol.set_protocol_max(kProtocols.newest);
  wait_done([&](Done<void> done) { supervisor_->enrol(enrol, std::move(done)); });
  attempt.nonce = enrolment_credential("secret", std::string(64, 'a'));
  v1::AttachRequest attach;
  attach.set_task(attempt.task);
  attach.set_nonce(attempt.nonce);
  attach.set_protocol_min(kProtocols.oldest);
  attach.set_protocol_max(kProtocols.newest);
  if (!supervisor_->attach(attach, WorkerEndpointKind::kRemote).ok()) violate("attach");
  v1::WorkerReport hello;
  hello.set_task(attempt.task);
  hello.set_nonce(attempt.nonce);
  hello.set_protocol(kProtocols.newest);
  attempt.sink = std::make_shared<NoCommands>();
  if (!supervisor_->connect(hello, attempt.sink, WorkerEndpointKind::kRemote).ok()) {
    violate("connect");
  }
  v1::WorkerReport started;
  started.set_number(1);
  started.mutable_started()->mutable_plan()->set_steps_total(10'000);
  wait_done([&](Done<void> done) { supervisor_->report(attempt.task, started, std::move(done)); });
  job_cpu_us_ += cpu_us() - cpu;
  add(life_us(), Kind::kEnds, attempt.name);
}

void Day::finish(Attempt& attempt) {
  const double cpu = cpu_us();
  const fs::path model = paths_.model(attempt.uid);
  write_tiny_model(model);
  v1::WorkerReport end;
  end.set_number(2);
  end.mutable_outcome()->set_kind(v1::Outcome::SUCCEEDED);
  end.mutable_outcome()->set_steps_done(10'000);
  wait_done([&](Done<void> done) { supervisor_->report(attempt.task, end, std::move(done)); });
  ++day_.succeeded;
  supervisor_->disconnect(attempt.task, attempt.sink.get());
  wait_for([&] { return std::ranges::find(gone_, attempt.task) != gone_.end(); });
  job_cpu_us_ += cpu_us() - cpu;
  add(kEndUs, Kind::kProcessEnds, attempt.name);
}

void Day::note_gone() {
  std::vector<std::string> gone;
  {
    const std::lock_guard lock(mu_);
    gone.swap(gone_);
  }
  for (const std::string& task : gone) {
    const auto name = name_of_task_.find(task);
    Attempt& attempt = attempts_.at(name->second);
    attempt.gone = true;
    clusters_->forget(kCluster, attempt.uid, attempt.number);
    attempt.owner.reset();
    name_of_task_.erase(name);
  }
}

void Day::fail(const std::string& name) {
  const auto found = attempts_.find(name);
  if (found == attempts_.end() || !cluster_->has_node(name) || found->second.gone) return;
  ++day_.node_failures;
  if (found->second.sink) supervisor_->disconnect(found->second.task, found->second.sink.get());
  cluster_->end(name, "NODE_FAIL");
}

void Day::settle() {
  for (bool more = true; more;) {
    note_gone();
    take_changes();
    double cpu = cpu_us();
    const Decisions decisions = lines_->decide(shares_, false, clock_.wall_us(), Quotas());
    decide_.add(cpu_us() - cpu);
    for (const StartDecision& start : decisions.starts) submit_to_cluster(start);
    const int64_t queries = cluster_->queries;
    cpu = cpu_us();
    const std::optional<int64_t> next = clusters_->turn();
    (cluster_->queries > queries ? query_.add(cpu_us() - cpu)
                                 : void(job_cpu_us_ += cpu_us() - cpu));
    next_turn_us_ = next.value_or(clock_.steady_us() + kHourUs);
    const std::vector<std::string> granted = cluster_->grant();
    for (const std::string& name : granted) {
      add(kStartUs, Kind::kComes, name);
      add(static_cast<int64_t>(failures_.exponential(options_.node_mtbf_hours * kHourUs)),
          Kind::kNodeFails, name);
    }
    const std::lock_guard lock(mu_);
    more = !decisions.starts.empty() || !granted.empty() || !changed_.empty() || !gone_.empty();
  }
  day_.live_most = std::max<int64_t>(day_.live_most, std::ssize(placed_));
}

ClusterDay Day::run() {
  const int64_t end_us = static_cast<int64_t>(options_.hours * kHourUs) + clock_.steady_us();
  const int64_t rss_before = rss_bytes(), written_before = written_bytes();
  const int64_t begin_us = clock_.steady_us();
  for (int i = 0; i < options_.nodes + options_.backlog; ++i) submit();
  const double mean_us = 86'400.0 * kSecondUs / (options_.jobs_per_node_day * options_.nodes);
  add(static_cast<int64_t>(arrivals_.exponential(mean_us)), Kind::kArrives);
  settle();
  int64_t asked_us = clock_.steady_us();
  while (true) {
    const int64_t next = std::min(events_.empty() ? end_us : events_.top().time_us, next_turn_us_);
    if (next >= end_us) break;
    clock_.pass(std::max<int64_t>(0, next - clock_.steady_us()));
    while (!events_.empty() && events_.top().time_us <= clock_.steady_us()) {
      const Event event = events_.top();
      events_.pop();
      const auto attempt = attempts_.find(event.name);
      const bool lives =
          attempt != attempts_.end() && !attempt->second.gone && cluster_->has_node(event.name);
      if (event.kind == Kind::kArrives) {
        submit();
        add(static_cast<int64_t>(arrivals_.exponential(mean_us)), Kind::kArrives);
      }
      if (event.kind == Kind::kComes && lives) come(attempt->second);
      if (event.kind == Kind::kEnds && lives) finish(attempt->second);
      if (event.kind == Kind::kProcessEnds) {
        cluster_->end(event.name, "COMPLETED");
        attempts_.erase(event.name);
      }
      if (event.kind == Kind::kNodeFails) fail(event.name);
    }
    cluster_->forget();
    settle();
    if (clock_.steady_us() - asked_us >= 600 * kSecondUs && !waiting_.empty()) {
      asked_us = clock_.steady_us();  // the reasons of 50 jobs, as for a list
      int asked = 0;
      for (const std::string& uid : waiting_) {
        if (++asked > 50) break;
        const Result<Job> job = store_->jobs().find_uid(uid);
        if (!job.ok()) continue;
        const double cpu = cpu_us();
        (void)lines_->why(*job, shares_, Quotas(), false, clock_.wall_us());
        why_.add(cpu_us() - cpu);
      }
    }
  }
  day_.hours = static_cast<double>(clock_.steady_us() - begin_us) / kHourUs;
  day_.queries = cluster_->queries;
  day_.squeue_bytes_query = cluster_->most_bytes;
  day_.rss_bytes = rss_bytes() - rss_before;
  day_.written_bytes = written_bytes() - written_before;
  day_.decide_us = decide_.spread();
  day_.query_us = query_.spread();
  day_.why_us = why_.spread();
  day_.commit_us = commits_.spread();
  day_.job_us.count = day_.attempts;
  day_.job_us.sum = job_cpu_us_;
  for (const auto& entry : fs::directory_iterator(options_.folder)) {
    if (entry.path().filename().string().starts_with("trainyard.db")) {
      day_.store_bytes += static_cast<int64_t>(entry.file_size());
    }
  }
  // Attempts with a node and active attempts in the store must be the same.
  const Result<std::vector<Job>> active = store_->jobs().list_active();
  if (!active.ok()) {
    violate(active.error().message);
  } else if (std::ssize(*active) != std::ssize(placed_)) {
    violate(std::to_string(active->size()) + " active jobs in the store, " +
            std::to_string(placed_.size()) + " known");
  }
  const Result<JobCounts> counts = store_->jobs().count();
  if (counts.ok() && counts->queued + std::ssize(*active) + day_.succeeded != day_.submitted) {
    violate("jobs are missing: " + std::to_string(counts->queued) + " queued, " +
            std::to_string(active->size()) + " active, " + std::to_string(day_.succeeded) +
            " succeeded of " + std::to_string(day_.submitted));
  }
  supervisor_->release();
  return day_;
}

}  // namespace

ClusterDay simulate_cluster_day(const ClusterDayOptions& options) { return Day(options).run(); }

}  // namespace trainyard::sim
