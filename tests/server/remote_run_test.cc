// Tests of whole remote attempts: the daemon's parts run in this process, and the real worker
// connects over TLS with an empty cache. Whatever happens to the connection, the worker or the
// daemon, the model must have the same bits as a run on the daemon's own host.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "proto/convert/data.h"
#include "proto/convert/spec.h"
#include "server/dispatch/train_task.h"
#include "server/files/worker_files.h"
#include "server/forecast/cluster_rates.h"
#include "server/handlers/worker_service.h"
#include "server/processes/process.h"
#include "server/protocol/enrolment.h"
#include "server/protocol/versions.h"
#include "server/rpc/listener.h"
#include "server/rpc/worker_endpoint.h"
#include "server/store/wait_for.h"
#include "src/base/sha256.h"
#include "src/data/dataset.h"
#include "src/job/recipe.h"
#include "src/job/reporter.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/train/trainer.h"
#include "tests/server/store_support.h"
#include "tests/server/tcp_relay.h"
#include "tests/support/source_path.h"
#include "tests/support/storm_relay.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard::server {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

const std::string kDigest = sha256_hex("the dataset of these tests");

/// Adds to a call what a remote worker's channel adds.
void identify(grpc::ClientContext& context, const std::string& task, const std::string& nonce) {
  context.AddMetadata(kTaskMetadata, task);
  context.AddMetadata(kCredentialMetadata, nonce);
}

/// A worker process as a placement starts it.
struct RemoteWorkers {
  ~RemoteWorkers() {
    if (process && !exit) process->signal_group(SIGKILL);
  }
  std::optional<Process> process;
  std::string output;
  std::string task;
  std::optional<ExitStatus> exit;
};

class RemoteRun : public ::testing::Test {
 protected:
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    spdlog::set_level(spdlog::level::warn);
    spdlog::enable_backtrace(kEventsShown);
    store_ = open_or_die(small_options(root_.path() / "state"));
    ClusterConfig cluster;
    cluster.name = "slurm";
    cluster_rates_ = std::make_shared<ClusterRates>(*store_, std::vector{cluster},
                                                    ClusterRatesOptions{.seconds_max = 0.001});
    store_->observe([this](std::span<const JobChange> changes) {
      for (const JobChange& change : changes) {
        const pid_t pid = is_terminal(change.state) ? frozen_at_end_.exchange(0) : 0;
        if (pid > 0) ::kill(pid, SIGSTOP);
      }
    });
    ASSERT_TRUE(paths_.create(local_files()).ok());
    IngestRequest request;
    request.format = "csv";
    request.sources.push_back({"data", testing::source_path("examples/digits.csv.gz")});
    request.csv.header = false;
    request.csv.target = "c64";
    const auto schema = ingest(request, paths_.dataset(kDigest), local_files());
    ASSERT_TRUE(schema.ok()) << schema.error().message;
    schema_ = to_proto(*schema);
    NewDataset dataset;
    dataset.project = "default";
    dataset.id = "digits";
    dataset.digest = kDigest;
    ASSERT_TRUE(store_->datasets().create(dataset).ok());
    ASSERT_TRUE(answer_of(store_->datasets(), &DatasetStore::set_ready, kDigest, schema_, 1).ok());
    start_daemon("127.0.0.1:0");
  }
  void TearDown() override {
    stop_daemon();
    if (HasFailure()) spdlog::dump_backtrace();
    spdlog::disable_backtrace();
  }

  /// `expects` runs before the daemon accepts connections, to announce tasks to the supervisor.
  void start_daemon(
      const std::string& listen, const std::function<void()>& expects = [] {}) {
    auto endpoint = WorkerEndpoint::open(paths_.root(), listen, "");
    ASSERT_TRUE(endpoint.ok()) << endpoint.error().message;
    endpoint_ = std::move(endpoint).value();
    SupervisorOptions options;
    options.worker = REAL_WORKER;
    options.socket = paths_.worker_socket();
    options.log_dir = paths_.logs();
    options.heartbeat_ms = 200;
    options.silence_ms = 2'000;
    options.stop_grace_ms = 20'000;
    options.stall_ms = stall_ms_;
    supervisor_ = std::make_unique<Supervisor>(options);
    executor_ = std::make_unique<Executor>(2, 100);
    transfers_ = std::make_unique<Executor>(2, 100);
    disk_ = std::make_unique<DiskWatch>(paths_.root(), 1,
                                        [this](const fs::path&) { return free_bytes_.load(); });
    files_ = std::make_unique<WorkerFiles>(*supervisor_, local_files(), *disk_);
    expects();
    here_ = make_worker_service(*supervisor_, *executor_);
    remote_ = make_remote_service(*supervisor_, *executor_, *files_, *transfers_);
    auto listener = Listener::open_private(paths_.worker_socket(), here_.get());
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    private_ = std::move(listener).value();
    listener = Listener::open_workers(listen, endpoint_->key_pem(), endpoint_->certificate_pem(),
                                      remote_.get());
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    port_ = std::move(listener).value();
    endpoint_->set_port(port_->port());
    std::ofstream(certificate()) << endpoint_->certificate_pem();
  }
  /// Ends the daemon as a replacement does: running tasks continue.
  void stop_daemon() {
    private_.reset();
    port_.reset();
    transfers_->stop();
    executor_->stop();
    supervisor_->release();
    supervisor_.reset();
  }

  /// Submits a job of `steps` steps of a small network with periodic evaluations and checkpoints.
  Job make_job(const std::string& id, int64_t steps, int64_t keep_every = 0) {
    NewJob job;
    job.project = "default";
    job.id = id;
    job.spec.mutable_dataset()->set_name("projects/default/datasets/digits@1");
    job.spec.mutable_model()->mutable_mlp()->add_hidden(48);
    v1::Recipe& recipe = *job.spec.mutable_recipe();
    recipe.set_steps(steps);
    recipe.set_batch_size(32);
    recipe.mutable_optimizer()->set_learning_rate(0.05);
    recipe.set_validation_split(0.2);
    recipe.set_seed(3);
    recipe.set_evaluate_every_steps(steps / 8);
    recipe.set_checkpoint_every_steps(steps / 8);
    if (keep_every > 0) recipe.set_keep_checkpoints_every_steps(keep_every);
    job.spec.mutable_resources()->set_threads(1);
    if (measures_) job.spec.mutable_resources()->set_cluster("slurm");
    job.plan.set_steps_total(steps);
    Job submitted = store_->jobs().submit(std::move(job)).value();
    EXPECT_TRUE(local_files().create_directories(paths_.checkpoints(submitted.uid)).ok());
    return submitted;
  }
  std::shared_ptr<TrainTask> make_owner(const Job& job, bool is_remote, bool adopted = false) {
    TrainTaskOptions options{paths_,  kDigest,   schema_,       1, false, trouble_,
                             adopted, is_remote, cluster_rates_};
    return std::make_shared<TrainTask>(*store_, *supervisor_, system_clock(), job,
                                       std::move(options), [](bool) {});
  }
  static std::string task_of(const Job& job) { return job.uid + "-" + std::to_string(job.attempt); }

  void run_here(const std::string& id) {
    const Job job = get(id);
    Supervisor::NewTask fresh;
    const Job started =
        store_->jobs()
            .start_attempt(job.uid, {"devices/cpu"}, sha256_hex(fresh.nonce), "R", "M")
            .value();
    fresh.id = task_of(started);
    fresh.kind = "here";
    fresh.owner = make_owner(started, false);
    supervisor_->start(std::move(fresh));
    wait_for(id, JobState::kSucceeded);
  }
  /// Announces an attempt of the job to the supervisor and returns its task.
  std::string expect(const std::string& id, int64_t lease_ms = 60'000) {
    const Job job = get(id);
    const Job started =
        store_->jobs().start_attempt(job.uid, {"devices/cpu"}, "", "R", "M").value();
    expect_attempt(started, "", lease_ms, false);
    return task_of(started);
  }
  void expect_attempt(const Job& job, const std::string& nonce_digest, int64_t lease_ms,
                      bool adopted) {
    supervisor_->add_remote({task_of(job), "elsewhere", make_owner(job, true, adopted),
                             sha256_hex(endpoint_->enrolment_secret(task_of(job))), nonce_digest,
                             lease_ms,
                             [this](const std::string& why) {
                               const std::lock_guard lock(mu_);
                               withdrawn_ += why + " ";
                             },
                             std::max(1, job.spec.resources().nodes())});
  }
  void spawn(RemoteWorkers& worker, const std::string& task, const std::string& attach,
             const std::vector<std::string>& more = {}) {
    SpawnRequest request;
    request.program = REAL_WORKER;
    request.arguments = {"--attach", attach,  "--certificate", certificate().string(),
                         "--cache",  cache(), "--task",        task};
    request.arguments.insert(request.arguments.end(), more.begin(), more.end());
    request.environment = worker_environment({});
    Result<Process> process = Process::spawn(request);
    ASSERT_TRUE(process.ok()) << process.error().message;
    worker.process = std::move(process).value();
    worker.task = task;
    ASSERT_TRUE(worker.process->write_stdin(endpoint_->enrolment_secret(task) + "\n").ok());
  }
  ExitStatus wait(RemoteWorkers& worker) {
    EXPECT_TRUE(eventually([&] {
      char buffer[4096];
      for (ssize_t n; (n = ::read(worker.process->output(), buffer, sizeof buffer)) > 0;) {
        worker.output.append(buffer, static_cast<size_t>(n));
      }
      return worker.exit || (worker.exit = worker.process->reap()).has_value();
    })) << "the worker goes on; "
        << worker.output;
    return worker.exit.value_or(ExitStatus{});
  }
  void run_remote(const std::string& id, const std::string& attach,
                  const std::vector<std::string>& more = {}) {
    RemoteWorkers worker;
    spawn(worker, expect(id), attach, more);
    EXPECT_EQ(wait(worker).number, 0) << worker.output;
    wait_for(id, JobState::kSucceeded);
  }

  Job get(const std::string& id) { return store_->jobs().find("default", id).value(); }
  void wait_for(const std::string& id, JobState state) {
    EXPECT_TRUE(eventually([&] { return get(id).state == state && idle(); }))
        << get(id).reason << ": " << get(id).message;
  }
  /// Returns the reason given to the placement when it was last asked to end a task.
  std::string withdrawn() {
    const std::lock_guard lock(mu_);
    return withdrawn_;
  }
  bool idle() { return supervisor_->task_count() == 0; }
  std::string model_of(const std::string& id) {
    const auto sha = sha256_file(paths_.model(get(id).uid) / "model.safetensors");
    return sha.ok() ? *sha : sha.error().message;
  }
  /// Returns all evaluation values in the order in which they were reported.
  std::vector<std::string> evaluations(const std::string& id) {
    std::vector<std::string> values;
    for (const v1::Event& event : all_events(*store_, get(id).uid)) {
      for (const v1::MetricSeries& series : event.metrics().series()) {
        if (!series.key().starts_with("val/")) continue;
        for (int i = 0; i < series.steps_size(); ++i) {
          values.push_back(series.key() + "@" + std::to_string(series.steps(i)) + "=" +
                           std::to_string(series.values(i)));
        }
      }
    }
    return values;
  }
  std::set<std::string> checkpoints(const std::string& id) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(paths_.checkpoints(get(id).uid))) {
      names.insert(entry.path().filename());
    }
    return names;
  }
  fs::path certificate() const { return root_.path() / "certificate.pem"; }
  std::string cache() const { return (root_.path() / "cache").string(); }

  static constexpr size_t kEventsShown = 200;  // the newest events, printed if a test fails
  static constexpr int64_t kSteps = 24'000;    // takes a second or two
  TemporaryDirectory root_;
  const StatePaths paths_{root_.path() / "state"};
  std::unique_ptr<Store> store_;
  v1::DatasetSchema schema_;
  /// Returns the basis that a forecast names for a job like those of make_job().
  std::string basis() {
    ClusterQuery query;
    query.cluster = "slurm";
    query.work = std::make_shared<RunWork>();
    query.precision = v1::Recipe::FP32;
    return cluster_rates_->forecast(query).basis();
  }
  std::vector<StoredNodeRates> node_rates() { return store_->forecasts().node_rates().value(); }
  /// Waits until the store has the rates of one kind of node. A worker does not wait until the
  /// rates that it sent are stored.
  bool is_measured() {
    return eventually([&] { return node_rates().size() == 1; });
  }
  bool measures_ = false;  // true: jobs run in the cluster "slurm", whose nodes are measured
  std::shared_ptr<ClusterRates> cluster_rates_;  // measurements take at most 1 ms
  std::atomic<pid_t> frozen_at_end_{0};          // PID to suspend once its job has ended
  std::shared_ptr<HostTrouble> trouble_ = std::make_shared<HostTrouble>();
  std::atomic<int64_t> free_bytes_{int64_t{1} << 40};
  int64_t stall_ms_ = 600'000;
  std::mutex mu_;
  std::string withdrawn_;  // guarded by mu_
  std::unique_ptr<WorkerEndpoint> endpoint_;
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Executor> executor_, transfers_;
  std::unique_ptr<DiskWatch> disk_;
  std::unique_ptr<WorkerFiles> files_;
  std::unique_ptr<grpc::Service> here_, remote_;
  std::unique_ptr<Listener> private_, port_;
};

TEST_F(RemoteRun, AnEmptyHostTrainsTheSameBits) {
  make_job("here", kSteps);
  run_here("here");
  make_job("there", kSteps);
  const std::string task = expect("there");
  const std::string secret = endpoint_->enrolment_secret(task);
  RemoteWorkers worker;
  spawn(worker, task, endpoint_->attach_address());
  // Collect what another user of the host can see of the worker.
  const std::string proc = "/proc/" + std::to_string(worker.process->pid());
  ASSERT_TRUE(eventually([&] { return supervisor_->connected(task); }));
  std::string seen;
  for (const char* name : {"/cmdline", "/environ"}) {
    std::ifstream file(proc + name);
    seen += std::string(std::istreambuf_iterator<char>(file), {});
  }
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kSucceeded);
  EXPECT_NE(seen.find(task), std::string::npos);
  for (const fs::path& place : {fs::path(cache()), root_.path() / "state/logs"}) {
    for (const auto& entry : fs::recursive_directory_iterator(place)) {
      if (entry.is_regular_file()) seen += *read_file(entry.path(), 1 << 30);
    }
  }
  EXPECT_EQ(seen.find(secret), std::string::npos);
  EXPECT_EQ(worker.output.find(secret), std::string::npos);
  EXPECT_EQ(store_->jobs().find_attempt(get("there").uid, 1)->nonce_digest.size(), 64u);

  EXPECT_EQ(model_of("there"), model_of("here"));
  EXPECT_EQ(evaluations("there"), evaluations("here"));
  EXPECT_GE(evaluations("there").size(), 16u);
  EXPECT_EQ(get("there").checkpoint_step, get("here").checkpoint_step);
  ASSERT_FALSE(checkpoints("there").empty());
  EXPECT_EQ(*checkpoints("there").rbegin(), *checkpoints("here").rbegin());
  EXPECT_TRUE(fs::exists(fs::path(cache()) / "datasets" / kDigest / "schema.json") ||
              !fs::is_empty(fs::path(cache()) / "datasets" / kDigest));
  EXPECT_TRUE(fs::is_empty(fs::path(cache()) / "work")) << "a worker cleans up";
}

// Fails if the link drops a checkpoint that the recipe keeps, or if daemon and worker prune
// differently.
TEST_F(RemoteRun, KeepsTheSameCheckpointsAsALocalJob) {
  make_job("here", kSteps, kSteps / 4);
  run_here("here");
  make_job("there", kSteps, kSteps / 4);
  TcpRelay relay(port_->port());
  relay.delay(5ms);
  run_remote("there", relay.address());
  EXPECT_EQ(checkpoints("there"), checkpoints("here"));
  EXPECT_GE(checkpoints("there").size(), 4u);
}

TEST_F(RemoteRun, AKilledWorkerIsResumedFromItsUploadedCheckpoint) {
  make_job("here", 4 * kSteps);
  run_here("here");
  make_job("there", 4 * kSteps);
  RemoteWorkers worker;
  spawn(worker, expect("there"), endpoint_->attach_address());
  ASSERT_TRUE(eventually([&] { return get("there").checkpoint_step > 0; }));
  worker.process->signal_group(SIGKILL);
  EXPECT_TRUE(wait(worker).signalled);
  ASSERT_LT(get("there").checkpoint_step, 4 * kSteps);
  TaskEnd end;
  end.exit = *worker.exit;
  supervisor_->ended_remote(worker.task, end);
  wait_for("there", JobState::kQueued);
  EXPECT_EQ(get("there").reason, "WORKER_KILLED");
  run_remote("there", endpoint_->attach_address());
  EXPECT_EQ(model_of("there"), model_of("here"));
  int64_t resumed_from = 0;
  for (const v1::Event& event : all_events(*store_, get("there").uid)) {
    resumed_from = std::max(resumed_from, event.state().resumed_from_step());
  }
  EXPECT_GT(resumed_from, 0);
  EXPECT_TRUE(fs::is_empty(fs::path(cache()) / "work")) << "the next one sweeps";
}

TEST_F(RemoteRun, ABrokenConnectionLosesAndRepeatsNothing) {
  make_job("here", 4 * kSteps);
  run_here("here");
  make_job("there", 4 * kSteps);
  TcpRelay relay(port_->port());
  relay.cut_each_after(150'001);  // cuts frames, files and the end of the handshake in the middle
  RemoteWorkers worker;
  spawn(worker, expect("there"), relay.address());
  ASSERT_TRUE(eventually([&] { return get("there").checkpoint_step > 0; })) << worker.output;
  relay.cut(true);
  std::this_thread::sleep_for(1s);
  relay.cut(false);
  relay.delay(2ms);
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kSucceeded);
  EXPECT_GT(relay.connections(), 5);
  EXPECT_EQ(model_of("there"), model_of("here"));
  EXPECT_EQ(evaluations("there"), evaluations("here"));
  EXPECT_EQ(get("there").attempt, 1);
}

// Fails if a job fails because too many workers request their data at the same time.
TEST_F(RemoteRun, CallsToABusyDaemonAreRetried) {
  make_job("there", kSteps);
  std::promise<void> free;
  const std::shared_future<void> is_free = free.get_future().share();
  for (int i = 0; i < 102; ++i) {  // the capacity of the threads and the queue together
    ASSERT_TRUE(eventually([&] { return transfers_->post([is_free] { is_free.wait(); }); }));
  }
  EXPECT_FALSE(transfers_->post([] {}));
  TcpRelay relay(port_->port());
  RemoteWorkers worker;
  spawn(worker, expect("there"), relay.address());
  ASSERT_TRUE(eventually([&] { return supervisor_->connected(worker.task); }));
  const int64_t bytes = relay.bytes();
  ASSERT_TRUE(eventually([&] { return relay.bytes() > bytes + 2'000; })) << "it goes on asking";
  free.set_value();
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kSucceeded);
  EXPECT_EQ(get("there").attempt, 1);
}

// A router that drops a connection silently sends no reset, so both sides must detect the loss.
TEST_F(RemoteRun, AConnectionDroppedByTheNetworkIsNoticed) {
  make_job("there", 8 * kSteps);
  TcpRelay relay(port_->port());
  RemoteWorkers worker;
  spawn(worker, expect("there"), relay.address());
  ASSERT_TRUE(eventually([&] { return get("there").checkpoint_step > 0; })) << worker.output;
  relay.forget();
  EXPECT_TRUE(eventually([&] { return supervisor_->silent_ms(worker.task).value_or(0) >= 2'000; }));
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kSucceeded);
  EXPECT_EQ(get("there").attempt, 1);
  EXPECT_EQ(evaluations("there").size(), 24u);
}

// Fails if a reconnection loses or repeats a report, or continues a file at the wrong byte.
TEST_F(RemoteRun, DelaysStallsAndResetsChangeNoResult) {
  make_job("here", kSteps);
  run_here("here");
  make_job("there", kSteps);
  testing::StormRelay relay(port_->port(), {.seed = 7,
                                            .delay = 200ms,
                                            .jitter = 100ms,
                                            .bytes_to_reset = 500'000,
                                            .bytes_to_stall = 200'000,
                                            .stall = 400ms});
  RemoteWorkers worker;
  spawn(worker, expect("there"), relay.address());
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kSucceeded);
  EXPECT_GT(relay.resets(), 0) << relay.bytes() << " bytes";
  EXPECT_GT(relay.stalls(), 0);
  EXPECT_EQ(model_of("there"), model_of("here"));
  EXPECT_EQ(evaluations("there"), evaluations("here"));
  EXPECT_EQ(get("there").checkpoint_step, get("here").checkpoint_step);
  EXPECT_EQ(get("there").attempt, 1);
}

// Bytes are dropped in one direction or in both, without a reset. Two workers reconnect. The third
// cannot and ends when its lease expires; the next attempt resumes from the checkpoint that it had
// pushed.
TEST_F(RemoteRun, ASilentConnectionIsReplacedAndALeaseEnds) {
  using Way = testing::StormRelay::Way;
  make_job("here", 8 * kSteps);
  run_here("here");
  const std::array<std::string, 3> ids = {"mute", "deaf", "gone"};
  std::array<testing::StormRelay, 3> relays = {testing::StormRelay(port_->port(), {}),
                                               testing::StormRelay(port_->port(), {}),
                                               testing::StormRelay(port_->port(), {})};
  std::array<RemoteWorkers, 3> workers;
  for (size_t i = 0; i < 3; ++i) {
    make_job(ids[i], 8 * kSteps);
    spawn(workers[i], expect(ids[i], i == 2 ? 3'000 : 60'000), relays[i].address());
    ASSERT_TRUE(eventually([&] { return get(ids[i]).checkpoint_step > 0; })) << ids[i];
    if (i == 0) relays[i].silence(Way::kThere);
    if (i == 1) relays[i].silence(Way::kBack);
    if (i == 2) relays[i].swallow();
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(wait(workers[i]).number, 0) << ids[i] << ": " << workers[i].output;
    EXPECT_TRUE(eventually([&] { return get(ids[i]).state == JobState::kSucceeded; })) << ids[i];
    EXPECT_EQ(get(ids[i]).attempt, 1);
    EXPECT_GE(relays[i].connections(), 2);
    EXPECT_EQ(model_of(ids[i]), model_of("here")) << ids[i];
    EXPECT_EQ(evaluations(ids[i]), evaluations("here")) << ids[i];
  }
  EXPECT_EQ(wait(workers[2]).number, 1) << "it ends by itself; " << workers[2].output;
  EXPECT_TRUE(eventually([&] { return withdrawn() == "silent "; })) << withdrawn();
  EXPECT_EQ(get("gone").state, JobState::kRunning) << "silence is not death";
  TaskEnd end;
  end.remote_end = RemoteEnd{"CANCELLED", "the cluster has ended it"};
  supervisor_->ended_remote(workers[2].task, std::move(end));
  wait_for("gone", JobState::kQueued);
  run_remote("gone", endpoint_->attach_address());
  EXPECT_EQ(get("gone").attempt, 2);
  EXPECT_EQ(model_of("gone"), model_of("here"));
}

// Fails if every worker sends five reports a second: a thousand workers would overload the store.
TEST_F(RemoteRun, MetricsAreSentEachSecondAndBeforeOtherEvents) {
  NewJob slow;
  slow.project = "default";
  slow.id = "there";
  slow.spec = make_job("like", 2000).spec;
  slow.spec.mutable_model()->mutable_mlp()->set_hidden(0, 1024);
  slow.spec.mutable_recipe()->set_batch_size(1024);
  slow.spec.mutable_recipe()->set_evaluate_every_steps(2000);
  slow.spec.mutable_recipe()->set_checkpoint_every_steps(1000);
  slow.plan.set_steps_total(2000);
  const Job job = store_->jobs().submit(std::move(slow)).value();
  ASSERT_TRUE(local_files().create_directories(paths_.checkpoints(job.uid)).ok());
  const auto begin = std::chrono::steady_clock::now();
  run_remote("there", endpoint_->attach_address());
  const auto passed = std::chrono::steady_clock::now() - begin;
  int64_t with_metrics = 0, others = 0, newest = 0;
  for (const v1::Event& event : all_events(*store_, job.uid)) {
    ++(event.has_metrics() ? with_metrics : others);
    for (const v1::MetricSeries& series : event.metrics().series()) {
      if (series.key() == "train/loss") newest = series.steps(series.steps_size() - 1);
    }
    if (event.has_checkpoint()) {
      EXPECT_GE(newest, event.checkpoint().step());
    }
  }
  EXPECT_EQ(newest, 2000);
  EXPECT_LE(with_metrics,
            std::chrono::duration_cast<std::chrono::seconds>(passed).count() + others + 2);
}

TEST_F(RemoteRun, TheNextDaemonAdoptsTheWorker) {
  make_job("here", 8 * kSteps);
  run_here("here");
  make_job("there", 8 * kSteps);
  RemoteWorkers worker;
  const std::string address = endpoint_->attach_address();
  spawn(worker, expect("there"), address);
  ASSERT_TRUE(eventually([&] { return get("there").checkpoint_step > 0; }));
  stop_daemon();
  std::this_thread::sleep_for(500ms);
  const Job job = get("there");
  ASSERT_EQ(job.state, JobState::kRunning);
  start_daemon(address, [&] {
    expect_attempt(job, store_->jobs().find_attempt(job.uid, 1)->nonce_digest, 60'000, true);
  });
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kSucceeded);
  EXPECT_EQ(get("there").attempt, 1);
  EXPECT_EQ(model_of("there"), model_of("here"));
  EXPECT_EQ(evaluations("there"), evaluations("here"));
}

TEST_F(RemoteRun, AWorkerMeasuresItsNodeAfterItsJob) {
  measures_ = true;
  make_job("first", kSteps);
  RemoteWorkers worker;
  spawn(worker, expect("first"), endpoint_->attach_address(),
        {"--end-time", std::to_string(std::time(nullptr) + 100'000)});
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("first", JobState::kSucceeded);
  EXPECT_EQ(worker.output.find("not_"), std::string::npos) << worker.output;
  ASSERT_TRUE(is_measured()) << basis();
  const std::vector<StoredNodeRates> measured = node_rates();
  EXPECT_EQ(measured[0].key.cluster, "slurm");
  EXPECT_NE(measured[0].key.node.find(" core"), std::string::npos) << measured[0].key.node;
  EXPECT_EQ(measured[0].key.threads, 1);
  EXPECT_GT(measured[0].memory_bytes, 0);
  EXPECT_NEAR(static_cast<double>(measured[0].time_limit_s), 100'000, 60);
  const auto rates = parse_rates(measured[0].rates);
  ASSERT_TRUE(rates.ok());
  EXPECT_GT(rates->process_seconds, 0);
  EXPECT_GT(rates->samples.size(), 20u);

  make_job("second", kSteps);
  run_remote("second", endpoint_->attach_address());
  ASSERT_EQ(node_rates().size(), 1u);
  EXPECT_EQ(node_rates()[0].time_us, measured[0].time_us) << "it is known";
  EXPECT_GE(node_rates()[0].seen_us, measured[0].seen_us);
}

// Fails if the death of a worker after its job's outcome was stored repeats the job, or if the
// nodes are then never measured.
TEST_F(RemoteRun, AWorkerKilledDuringAMeasurementLosesNothing) {
  measures_ = true;
  make_job("first", kSteps);
  RemoteWorkers worker;
  spawn(worker, expect("first"), endpoint_->attach_address());
  // The worker is suspended before it receives the request to measure, so it cannot have measured.
  frozen_at_end_ = worker.process->pid();
  ASSERT_TRUE(eventually([&] { return basis().find("is measuring one now") != std::string::npos; }))
      << basis();
  EXPECT_EQ(get("first").state, JobState::kSucceeded) << "before its worker measures";
  worker.process->signal_group(SIGKILL);
  EXPECT_TRUE(wait(worker).signalled);
  wait_for("first", JobState::kSucceeded);
  EXPECT_EQ(get("first").attempt, 1);
  EXPECT_TRUE(node_rates().empty());
  EXPECT_TRUE(eventually([&] { return basis().find("ended before") != std::string::npos; }))
      << basis();
  make_job("second", kSteps);
  run_remote("second", endpoint_->attach_address());
  EXPECT_TRUE(is_measured()) << basis();
}

TEST_F(RemoteRun, OnlyTheDaemonsOwnCertificateIsTrusted) {
  make_job("there", kSteps);
  const std::string task = expect("there");
  const auto other = WorkerEndpoint::open(root_.path() / "other", "127.0.0.1:1", "");
  ASSERT_TRUE(other.ok());
  std::ofstream(certificate()) << (*other)->certificate_pem();
  RemoteWorkers worker;
  spawn(worker, task, endpoint_->attach_address(), {"--attach-timeout", "1"});
  EXPECT_EQ(wait(worker).number, 1);
  EXPECT_NE(worker.output.find("enrol_failed"), std::string::npos) << worker.output;
  EXPECT_EQ(store_->jobs().find_attempt(get("there").uid, 1)->nonce_digest, "");
  EXPECT_EQ(worker.output.find(endpoint_->enrolment_secret(task)), std::string::npos);
}

TEST_F(RemoteRun, ASecondWorkerWithTheSecretIsRefused) {
  make_job("there", 8 * kSteps);
  RemoteWorkers first, second;
  spawn(first, expect("there"), endpoint_->attach_address());
  ASSERT_TRUE(eventually([&] { return get("there").state == JobState::kRunning; }));
  spawn(second, first.task, endpoint_->attach_address());
  EXPECT_EQ(wait(second).number, 1);
  EXPECT_NE(second.output.find("ENROLMENT_USED"), std::string::npos) << second.output;
  EXPECT_EQ(wait(first).number, 0) << first.output;
  wait_for("there", JobState::kSucceeded);
}

TEST_F(RemoteRun, AFencedWorkerEndsAtOnce) {
  make_job("there", 400 * kSteps);
  RemoteWorkers worker;
  spawn(worker, expect("there"), endpoint_->attach_address());
  ASSERT_TRUE(eventually([&] { return get("there").state == JobState::kRunning; }));
  supervisor_->ended_remote(worker.task, {});  // the placement reports the end by mistake
  EXPECT_EQ(wait(worker).number, 1) << worker.output;
  EXPECT_TRUE(fs::is_empty(fs::path(cache()) / "work"));
}

TEST_F(RemoteRun, BeforeATimeLimitTheJobIsRequeued) {
  // The job takes longer than its limit even on a machine twice as fast, and the limit leaves time
  // for a slow start.
  constexpr int64_t kLong = 20 * kSteps;
  make_job("here", kLong);
  run_here("here");
  make_job("there", kLong);
  RemoteWorkers worker;
  spawn(worker, expect("there"), endpoint_->attach_address(),
        {"--end-time", std::to_string(std::time(nullptr) + 3)});
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kQueued);
  const Job stopped = get("there");
  EXPECT_EQ(stopped.reason, "TIME_LIMIT_CONTINUED") << stopped.message;
  EXPECT_GT(stopped.checkpoint_step, 0);
  EXPECT_LT(stopped.checkpoint_step, kLong);
  run_remote("there", endpoint_->attach_address());
  EXPECT_EQ(model_of("there"), model_of("here"));
}

// Fails if a job restarts endlessly because its time limit does not leave time for one step.
TEST_F(RemoteRun, ATimeLimitThatIsTooShortCountsAsALoss) {
  make_job("there", kSteps);
  RemoteWorkers worker;
  spawn(worker, expect("there"), endpoint_->attach_address(),
        {"--end-time", std::to_string(std::time(nullptr))});
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kQueued);
  EXPECT_EQ(get("there").reason, "TIME_LIMIT_TOO_SHORT") << get("there").message;
}

TEST_F(RemoteRun, AHostWithoutTheDeviceDoesNotFailTheJob) {
  const Job job = make_job("there", kSteps);
  const Job started = store_->jobs()
                          .start_attempt(job.uid, {"devices/gpu-0", "devices/gpu-1"}, "", "R", "M")
                          .value();
  expect_attempt(started, "", 60'000, false);
  RemoteWorkers worker;
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  spawn(worker, task_of(started), endpoint_->attach_address());
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kQueued);
  EXPECT_EQ(get("there").reason, "DEVICE_NOT_FOUND") << get("there").message;
}

TEST_F(RemoteRun, WithoutASecretNoCallIsMade) {
  make_job("there", kSteps);
  const std::string task = expect("there");
  RemoteWorkers worker;
  SpawnRequest request;
  request.program = REAL_WORKER;
  request.arguments = {"--attach",      endpoint_->attach_address(),
                       "--certificate", certificate().string(),
                       "--cache",       cache(),
                       "--task",        task};
  worker.process = Process::spawn(request).value();
  ASSERT_TRUE(worker.process->write_stdin("\n").ok());
  EXPECT_EQ(wait(worker).number, 2) << worker.output;
  EXPECT_FALSE(fs::exists(cache()));
}

TEST_F(RemoteRun, ACancelledJobStopsAndUploadsItsCheckpoint) {
  make_job("there", 400 * kSteps);
  RemoteWorkers worker;
  spawn(worker, expect("there"), endpoint_->attach_address());
  ASSERT_TRUE(eventually([&] { return get("there").state == JobState::kRunning; }));
  ASSERT_TRUE(store_->jobs().request_cancel("default", "there").ok());
  supervisor_->stop(worker.task, "cancel");
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kCancelled);
  EXPECT_FALSE(fs::is_empty(paths_.checkpoints(get("there").uid)));
}

TEST_F(RemoteRun, AFullDiskOfTheDaemonDoesNotStopTraining) {
  make_job("there", 8 * kSteps);
  free_bytes_ = 0;
  RemoteWorkers worker;
  spawn(worker, expect("there"), endpoint_->attach_address());
  const auto failures = [this] {
    int count = 0;
    for (const v1::Event& event : all_events(*store_, get("there").uid)) {
      count += event.has_checkpoint() && !event.checkpoint().error().empty() ? 1 : 0;
    }
    return count;
  };
  ASSERT_TRUE(eventually([&] { return failures() > 0; }));
  free_bytes_ = int64_t{1} << 40;
  EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("there", JobState::kSucceeded);
  EXPECT_EQ(failures(), 1) << "told once";
  EXPECT_GT(get("there").checkpoint_step, 0);
}

TEST_F(RemoteRun, TwoWorkersOfAHostShareItsCache) {
  make_job("one", kSteps);
  make_job("two", kSteps);
  TcpRelay relay(port_->port());
  relay.delay(5ms);
  RemoteWorkers one, two;
  spawn(one, expect("one"), relay.address());
  spawn(two, expect("two"), relay.address());
  EXPECT_EQ(wait(one).number, 0) << one.output;
  EXPECT_EQ(wait(two).number, 0) << two.output;
  wait_for("one", JobState::kSucceeded);
  wait_for("two", JobState::kSucceeded);
  EXPECT_EQ(model_of("one"), model_of("two"));
  int folders = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(cache()) / "datasets")) {
    folders += entry.is_directory() ? 1 : 0;
  }
  EXPECT_EQ(folders, 1);
}

/// Delays its reply to each report until answer_all() is called.
class HoldingOwner final : public TaskOwner {
 public:
  Result<v1::Assignment> assignment() override { return v1::Assignment(); }
  void ended(const TaskEnd&, TaskHold) override {}
  void report(const v1::WorkerReport& report, Done<void> done) override {
    const std::lock_guard lock(mu_);
    if (report.has_heartbeat() || free_) return done({});
    waiting_.push_back(std::move(done));
  }
  size_t waiting() {
    const std::lock_guard lock(mu_);
    return waiting_.size();
  }
  void answer_all() {
    std::vector<Done<void>> done;
    {
      const std::lock_guard lock(mu_);
      free_ = true;
      done.swap(waiting_);
    }
    for (const Done<void>& one : done) one({});
  }

 private:
  std::mutex mu_;
  bool free_ = false;
  std::vector<Done<void>> waiting_;
};

// Fails if the reports of many workers overflow the store's queue, which would break streams and
// make them reconnect while the store is busiest.
TEST_F(RemoteRun, ManyStreamsWaitForASlowStore) {
  constexpr size_t kStreams = 60, kEach = 70;
  constexpr size_t kAtMost = 2048 + kStreams;  // each stream may have 64 unanswered reports
  grpc::SslCredentialsOptions trusted;
  trusted.pem_root_certs = endpoint_->certificate_pem();
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kWorkersName);
  const auto channel = grpc::CreateCustomChannel(endpoint_->attach_address(),
                                                 grpc::SslCredentials(trusted), arguments);
  const auto stub = v1::WorkerService::NewStub(channel);
  const auto owner = std::make_shared<HoldingOwner>();
  std::vector<std::jthread> threads;
  std::atomic<size_t> acknowledged{0};
  for (size_t i = 0; i < kStreams; ++i) {
    const std::string task = "many-" + std::to_string(i);
    supervisor_->add_remote({task, "many", owner, "", sha256_hex(task), 60'000, {}});
    v1::AttachRequest attach;
    attach.set_task(task);
    attach.set_nonce(task);
    attach.set_protocol_min(kProtocols.oldest);
    attach.set_protocol_max(kProtocols.newest);
    ASSERT_TRUE(supervisor_->attach(attach, WorkerEndpointKind::kRemote).ok());
    threads.emplace_back([&, task] {
      grpc::ClientContext context;
      identify(context, task, task);
      const auto stream = stub->Report(&context);
      std::jthread writer([&] {
        for (size_t n = 1; n <= kEach; ++n) {
          v1::WorkerReport report;
          report.set_task(task);
          report.set_nonce(task);
          report.set_protocol(kProtocols.newest);
          report.set_number(static_cast<int64_t>(n));
          report.mutable_log()->set_text("line");
          if (!stream->Write(report)) return;
        }
      });
      v1::WorkerCommand command;
      while (stream->Read(&command) && command.acknowledged() < static_cast<int64_t>(kEach)) {
      }
      if (command.acknowledged() == static_cast<int64_t>(kEach)) ++acknowledged;
      writer.join();
      context.TryCancel();
    });
  }
  EXPECT_TRUE(eventually([&] { return owner->waiting() >= 2048; })) << owner->waiting();
  std::this_thread::sleep_for(300ms);  // gives excess reports time to arrive
  EXPECT_LE(owner->waiting(), kAtMost);
  owner->answer_all();
  threads.clear();
  EXPECT_EQ(acknowledged, kStreams) << "every report of every stream is taken in the end";
}

/// Fixture for an attempt on several nodes, each of which is a worker process on this host.
class NodesRun : public RemoteRun {
 protected:
  static constexpr int32_t kNodes = 4;

  Job make_nodes_job(const std::string& id, int64_t steps) {
    NewJob job;
    job.project = "default";
    job.id = id;
    job.spec = RemoteRun::make_job(id + "-one", steps).spec;
    job.spec.mutable_recipe()->mutable_optimizer()->set_type(v1::Optimizer::ADAMW);
    job.spec.mutable_recipe()->mutable_optimizer()->set_learning_rate(0.001);
    job.spec.mutable_resources()->set_device(v1::Resources::CPU);
    job.spec.mutable_resources()->set_cluster("cluster");
    job.spec.mutable_resources()->set_nodes(kNodes);
    job.spec.mutable_resources()->add_shard(v1::Resources::OPTIMIZER);
    job.plan.set_steps_total(steps);
    Job submitted = store_->jobs().submit(std::move(job)).value();
    EXPECT_TRUE(local_files().create_directories(paths_.checkpoints(submitted.uid)).ok());
    return submitted;
  }

  /// Returns the digest of the model that ranks in threads of this process train for the job.
  std::string model_of_local_ranks(const Job& job) {
    const EngineSpec spec = to_engine(job.spec).value();
    TrainJob local;
    local.model = spec.model;
    local.recipe = spec.recipe;
    local.dataset = paths_.dataset(kDigest);
    local.checkpoints = root_.path() / "local-checkpoints";
    local.model_output = root_.path() / "local-model";
    std::vector<RankDevice> devices;
    std::vector<Backend*> backends;
    for (int r = 0; r < kNodes; ++r) {
      devices.push_back({"devices/cpu", make_cpu_backend(1)});
      backends.push_back(devices.back().backend.get());
    }
    EXPECT_TRUE(backends.front()->connect(backends).ok());
    SilentReporter silent;
    const auto result = train(local, devices, local_files(), silent, {});
    EXPECT_TRUE(result.ok()) << result.error().message;
    return sha256_file(local.model_output / "model.safetensors").value();
  }

  void spawn_all(std::array<RemoteWorkers, kNodes>& workers, const std::string& task) {
    for (int r = 0; r < kNodes; ++r) {
      spawn(workers[static_cast<size_t>(r)], task, endpoint_->attach_address(),
            {"--rank", std::to_string(r)});
    }
  }

 private:
  struct SilentReporter final : Reporter {
    void started(const RunPlan&) override {}
    void progressed() override {}
    void metrics(std::span<const MetricPoint>) override {}
    void checkpoint_saved(int64_t, const fs::path&) override {}
    void checkpoint_failed(int64_t, const Error&) override {}
    void log(std::string_view) override {}
  };
};

TEST_F(NodesRun, FourWorkersTrainTheBitsOfFourLocalRanks) {
  const Job job = make_nodes_job("nodes", 400);
  std::array<RemoteWorkers, kNodes> workers;
  const std::string task = expect("nodes");
  spawn_all(workers, task);
  for (RemoteWorkers& worker : workers) EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("nodes", JobState::kSucceeded);
  EXPECT_EQ(model_of("nodes"), model_of_local_ranks(job));
  EXPECT_EQ(get("nodes").checkpoint_step, 400);
  EXPECT_EQ(evaluations("nodes").size() % 8, 0u) << "of one rank alone";
  EXPECT_TRUE(fs::is_empty(fs::path(cache()) / "work"));
  for (const RemoteWorkers& worker : workers) {
    EXPECT_EQ(worker.output.find(endpoint_->enrolment_secret(task)), std::string::npos);
  }
}

TEST_F(NodesRun, AKilledRankEndsTheAttemptAndAllResumeTogether) {
  const Job job = make_nodes_job("nodes", 2000);
  {
    std::array<RemoteWorkers, kNodes> workers;
    const std::string task = expect("nodes");
    spawn_all(workers, task);
    ASSERT_TRUE(eventually([&] { return get("nodes").checkpoint_step > 0; }));
    workers[2].process->signal_group(SIGKILL);
    for (RemoteWorkers& worker : workers) (void)wait(worker);
    EXPECT_EQ(workers[0].exit->number, 0) << workers[0].output;
    EXPECT_TRUE(workers[2].exit->signalled);
    EXPECT_NE(workers[3].output.find("RANK_LOST message=\"rank 2 "), std::string::npos)
        << workers[3].output;
    supervisor_->ended_remote(task, {});
  }
  wait_for("nodes", JobState::kQueued);
  const Job lost = get("nodes");
  EXPECT_EQ(lost.reason, "RANK_LOST");
  EXPECT_NE(lost.message.find("One of its nodes was lost: rank 2 (127.0.0.1) has ended"),
            std::string::npos)
      << lost.message;
  ASSERT_GT(lost.checkpoint_step, 0);
  ASSERT_LT(lost.checkpoint_step, 2000);
  std::array<RemoteWorkers, kNodes> workers;
  spawn_all(workers, expect("nodes"));
  for (RemoteWorkers& worker : workers) EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("nodes", JobState::kSucceeded);
  EXPECT_EQ(model_of("nodes"), model_of_local_ranks(job));
}

// The daemon does not see the traffic between ranks. It notices a rank that stands still because
// the attempt makes no progress, and the attempt is over when the placement reports its end.
TEST_F(NodesRun, AStalledRankEndsTheAttemptAndAllResumeTogether) {
  stop_daemon();
  stall_ms_ = 1'500;
  start_daemon("127.0.0.1:0");
  const Job job = make_nodes_job("nodes", 2000);
  {
    std::array<RemoteWorkers, kNodes> workers;
    const std::string task = expect("nodes");
    spawn_all(workers, task);
    ASSERT_TRUE(eventually([&] { return get("nodes").checkpoint_step > 0; }));
    workers[2].process->signal_group(SIGSTOP);
    ASSERT_TRUE(eventually([&] { return withdrawn() == "stalled "; })) << withdrawn();
    EXPECT_EQ(get("nodes").state, JobState::kRunning) << "nobody has seen it end";
    for (RemoteWorkers& worker : workers) worker.process->signal_group(SIGKILL);
    for (RemoteWorkers& worker : workers) (void)wait(worker);
    TaskEnd end;
    end.remote_end = RemoteEnd{"CANCELLED", "the cluster has ended it"};
    supervisor_->ended_remote(task, std::move(end));
  }
  wait_for("nodes", JobState::kQueued);
  ASSERT_LT(get("nodes").checkpoint_step, 2000);
  std::array<RemoteWorkers, kNodes> workers;
  spawn_all(workers, expect("nodes"));
  for (RemoteWorkers& worker : workers) EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("nodes", JobState::kSucceeded);
  EXPECT_EQ(model_of("nodes"), model_of_local_ranks(job));
}

TEST_F(NodesRun, NetworkFaultsTowardsTheDaemonChangeNoBit) {
  const Job job = make_nodes_job("nodes", 400);
  testing::StormRelay relay(port_->port(), {.seed = 3,
                                            .delay = 100ms,
                                            .jitter = 50ms,
                                            .bytes_to_reset = 200'000,
                                            .bytes_to_stall = 100'000,
                                            .stall = 200ms});
  std::array<RemoteWorkers, kNodes> workers;
  const std::string task = expect("nodes");
  for (int r = 0; r < kNodes; ++r) {
    spawn(workers[static_cast<size_t>(r)], task, relay.address(), {"--rank", std::to_string(r)});
  }
  for (RemoteWorkers& worker : workers) EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("nodes", JobState::kSucceeded);
  EXPECT_GT(relay.resets(), 0) << relay.bytes() << " bytes";
  EXPECT_EQ(get("nodes").attempt, 1);
  EXPECT_EQ(model_of("nodes"), model_of_local_ranks(job));
}

TEST_F(NodesRun, ACancelReachesAllOfThem) {
  make_nodes_job("nodes", 4'000'000);
  std::array<RemoteWorkers, kNodes> workers;
  const std::string task = expect("nodes");
  spawn_all(workers, task);
  ASSERT_TRUE(eventually([&] { return get("nodes").state == JobState::kRunning; }));
  ASSERT_TRUE(store_->jobs().request_cancel("default", "nodes").ok());
  supervisor_->stop(task, "cancel");
  for (RemoteWorkers& worker : workers) EXPECT_EQ(wait(worker).number, 0) << worker.output;
  wait_for("nodes", JobState::kCancelled);
}

TEST_F(NodesRun, EachRankAttachesOnceAndOnlyRankZeroMayWrite) {
  make_nodes_job("nodes", 400);
  const std::string task = expect("nodes");
  const auto channel =
      grpc::CreateCustomChannel(endpoint_->attach_address(),
                                grpc::SslCredentials({endpoint_->certificate_pem(), "", ""}), [] {
                                  grpc::ChannelArguments arguments;
                                  arguments.SetSslTargetNameOverride(kWorkersName);
                                  return arguments;
                                }());
  const auto stub = v1::WorkerService::NewStub(channel);
  const auto enrol = [&](int32_t rank, char digit) {
    v1::EnrolRequest request;
    request.set_task(task);
    request.set_secret(endpoint_->enrolment_secret(task));
    request.set_key(std::string(64, digit));
    request.set_protocol_min(kProtocols.oldest);
    request.set_protocol_max(kProtocols.newest);
    request.set_rank(rank);
    grpc::ClientContext context;
    v1::EnrolResponse response;
    return stub->Enrol(&context, request, &response).error_message();
  };
  EXPECT_EQ(enrol(2, 'a'), "");
  EXPECT_EQ(enrol(2, 'a'), "") << "the answer may have been lost";
  EXPECT_NE(enrol(2, 'b').find("already has a worker of rank 2"), std::string::npos);
  EXPECT_NE(enrol(4, 'c').find("rank: 4 is out of range, expected 0..3"), std::string::npos);
  EXPECT_NE(enrol(-1, 'c').find("out of range"), std::string::npos);

  const std::string nonce =
      enrolment_credential(endpoint_->enrolment_secret(task), std::string(64, 'a'));
  const auto rendezvous = [&](const std::string& credential, const std::string& address) {
    v1::RendezvousRequest request;
    request.set_task(task);
    request.set_nonce(credential);
    request.mutable_endpoint()->set_address(address);
    request.mutable_endpoint()->set_port(4711);
    grpc::ClientContext context;
    identify(context, task, nonce);
    v1::RendezvousResponse response;
    const grpc::Status status = stub->Rendezvous(&context, request, &response);
    return status.ok() ? (response.ready() ? "ready" : "waits") : status.error_message();
  };
  EXPECT_EQ(rendezvous(nonce, "127.0.0.1"), "waits") << "the others have not come";
  EXPECT_NE(rendezvous(nonce, "node-2").find("expected a numeric address"), std::string::npos);
  EXPECT_NE(rendezvous(std::string(64, '0'), "127.0.0.1").find("is not running"),
            std::string::npos);
  {
    v1::AttachRequest request;
    request.set_task(task);
    request.set_nonce(nonce);
    request.set_protocol_min(kProtocols.oldest);
    request.set_protocol_max(kProtocols.newest);
    grpc::ClientContext context;
    identify(context, task, nonce);
    v1::Assignment assignment;
    EXPECT_TRUE(stub->Attach(&context, request, &assignment).ok());
    EXPECT_EQ(assignment.train().nodes(), kNodes);
  }
  {
    grpc::ClientContext context;
    identify(context, task, nonce);
    v1::PushFilesResponse response;
    const auto stream = stub->PushFiles(&context, &response);
    v1::PushFilesRequest request;
    request.mutable_start()->set_task(task);
    request.mutable_start()->set_nonce(nonce);
    request.mutable_start()->set_set(v1::FILE_SET_CHECKPOINT);
    request.mutable_start()->set_step(1);
    stream->Write(request);
    stream->WritesDone();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
  }
  {
    grpc::ClientContext context;
    identify(context, task, nonce);
    const auto stream = stub->Report(&context);
    v1::WorkerReport report;
    report.set_task(task);
    report.set_nonce(nonce);
    report.set_protocol(kProtocols.newest);
    report.mutable_outcome()->set_kind(v1::Outcome::SUCCEEDED);
    stream->Write(report);
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
  }
  EXPECT_EQ(get("nodes").state, JobState::kStarting);
}

}  // namespace
}  // namespace trainyard::server
