// Measures the cost of remote workers for their daemon: the TLS port, the supervisor, and the store
// on a disk, with one connection for each worker, each of which reports metrics.
//
//   cluster_link_bench FOLDER [--workers N] [--reports-per-second R] [--steps-per-second S]
//                      [--seconds T]
//
// The workers run in a process of their own: each is a stream like a real worker's, without the
// training.
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/dispatch/train_task.h"
#include "server/files/worker_files.h"
#include "server/handlers/worker_service.h"
#include "server/protocol/enrolment.h"
#include "server/protocol/versions.h"
#include "server/rpc/listener.h"
#include "server/rpc/worker_endpoint.h"
#include "server/store/store.h"
#include "server/store/wait_for.h"
#include "src/base/sha256.h"
#include "tests/bench/process_facts.h"
#include "trainyard/v1/worker_service.grpc.pb.h"

namespace trainyard::server {
namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

struct Setting {
  std::string folder;
  int workers = 1000;
  double reports_per_second = 5, steps_per_second = 10, seconds = 20;
};

// ---- The workers ---------------------------------------------------------------------------

/// One worker's stream. One report is written at a time; later ones wait in a queue.
class Worker final : public grpc::ClientBidiReactor<v1::WorkerReport, v1::WorkerCommand> {
 public:
  Worker(const std::string& address, const std::string& certificate, std::string task,
         std::string secret)
      : task_(std::move(task)), secret_(std::move(secret)) {
    grpc::SslCredentialsOptions trusted;
    trusted.pem_root_certs = certificate;
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kWorkersName);
    arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a separate connection
    channel_ = grpc::CreateCustomChannel(address, grpc::SslCredentials(trusted), arguments);
    stub_ = v1::WorkerService::NewStub(channel_);
  }

  bool come() {
    v1::EnrolRequest enrol;
    enrol.set_task(task_);
    enrol.set_secret(secret_);
    enrol.set_key(std::string(64, 'a'));
    enrol.set_protocol_min(kProtocols.oldest);
    enrol.set_protocol_max(kProtocols.newest);
    v1::EnrolResponse enrolled;
    grpc::Status status;
    for (int tries = 0; tries < 100; ++tries) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      context.set_deadline(std::chrono::system_clock::now() + 60s);
      status = stub_->Enrol(&context, enrol, &enrolled);
      if (status.ok()) break;
    }
    nonce_ = enrolment_credential(secret_, std::string(64, 'a'));
    v1::AttachRequest attach;
    attach.set_task(task_);
    attach.set_nonce(nonce_);
    attach.set_protocol_min(kProtocols.oldest);
    attach.set_protocol_max(kProtocols.newest);
    grpc::ClientContext context;
    identify(context);
    v1::Assignment assignment;
    if (status.ok()) status = stub_->Attach(&context, attach, &assignment);
    if (!status.ok()) {
      std::fprintf(stderr, "%s: %s\n", task_.c_str(), status.error_message().c_str());
      return false;
    }
    identify(context_);
    stub_->async()->Report(&context_, this);
    v1::WorkerReport started;
    started.set_task(task_);
    started.set_nonce(nonce_);
    started.set_protocol(kProtocols.newest);
    started.mutable_started()->mutable_plan()->set_steps_total(1'000'000);
    StartRead(&command_);
    StartCall();
    send(std::move(started));
    return true;
  }

  void report(int steps) {
    v1::WorkerReport report;
    v1::MetricSeries& loss = *report.mutable_metrics()->add_series();
    v1::MetricSeries& accuracy = *report.mutable_metrics()->add_series();
    loss.set_key("train/loss");
    accuracy.set_key("train/accuracy");
    for (int i = 0; i < steps; ++i) {
      ++step_;
      loss.add_steps(step_);
      loss.add_values(static_cast<double>(std::sin(static_cast<float>(step_))));
      accuracy.add_steps(step_);
      accuracy.add_values(static_cast<double>(step_ % 50) / 50);
    }
    send(std::move(report));
  }

  /// Returns the times from a report to its acknowledgement in milliseconds, since the last call.
  std::vector<double> take_latencies() {
    const std::lock_guard lock(mu_);
    return std::exchange(latencies_, {});
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mu_);
    writing_ = false;
    if (ok) write_next();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      const std::lock_guard lock(mu_);
      while (!sent_.empty() && sent_.front().first <= command_.acknowledged()) {
        latencies_.push_back(
            std::chrono::duration<double, std::milli>(Steady::now() - sent_.front().second)
                .count());
        sent_.pop_front();
      }
    }
    StartRead(&command_);
  }
  void OnDone(const grpc::Status& status) override {
    std::fprintf(stderr, "%s has ended: %s\n", task_.c_str(), status.error_message().c_str());
  }

 private:
  void identify(grpc::ClientContext& context) const {
    context.AddMetadata(kTaskMetadata, task_);
    context.AddMetadata(kCredentialMetadata, nonce_);
  }
  void send(v1::WorkerReport report) {
    const std::lock_guard lock(mu_);
    report.set_number(++number_);
    sent_.emplace_back(number_, Steady::now());
    queue_.push_back(std::move(report));
    write_next();
  }
  void write_next() {  // the caller holds mu_
    if (writing_ || queue_.empty()) return;
    writing_ = true;
    out_ = std::move(queue_.front());
    queue_.pop_front();
    StartWrite(&out_);
  }

  const std::string task_, secret_;
  std::string nonce_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  v1::WorkerCommand command_;
  std::mutex mu_;
  v1::WorkerReport out_;
  std::deque<v1::WorkerReport> queue_;
  std::deque<std::pair<int64_t, Steady::time_point>> sent_;
  std::vector<double> latencies_;
  bool writing_ = false;
  int64_t number_ = 0, step_ = 0;
};

/// Reads a line for each worker from standard input: address, certificate file, tasks and secrets.
/// Writes a line when all workers have connected; then they report until the process is killed,
/// with a line of figures each second.
int run_workers(const Setting& setting, int from_daemon, int to_daemon) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::FILE* in = ::fdopen(from_daemon, "r");
  std::FILE* out = ::fdopen(to_daemon, "w");
  char address[200], file[4000];
  if (std::fscanf(in, "%199s %3999s", address, file) != 2) return 1;
  std::ifstream pem(file);
  const std::string certificate{std::istreambuf_iterator<char>(pem), {}};
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < setting.workers; ++i) {
    char task[200], secret[200];
    if (std::fscanf(in, "%199s %199s", task, secret) != 2) return 1;
    workers.push_back(std::make_unique<Worker>(address, certificate, task, secret));
  }
  std::atomic<size_t> next{0};
  std::atomic<int> came{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 16; ++t) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < workers.size(); i = next++) came += workers[i]->come() ? 1 : 0;
      });
    }
  }
  std::fprintf(out, "%d\n", came.load());
  std::fflush(out);
  const int steps = std::max(
      1, static_cast<int>(std::lround(setting.steps_per_second / setting.reports_per_second)));
  const double all_per_second = setting.workers * setting.reports_per_second;
  const Steady::time_point begin = Steady::now();
  double sent = 0;
  int reported = 0;
  std::vector<double> latencies;
  for (size_t at = 0;;) {
    const double passed = std::chrono::duration<double>(Steady::now() - begin).count();
    for (; sent < passed * all_per_second; ++sent) workers[at++ % workers.size()]->report(steps);
    if (passed >= reported + 1) {
      reported = static_cast<int>(passed);
      latencies.clear();
      for (const auto& worker : workers) {
        const std::vector<double> more = worker->take_latencies();
        latencies.insert(latencies.end(), more.begin(), more.end());
      }
      std::ranges::sort(latencies);
      const size_t n = latencies.size();
      std::fprintf(out, "%zu %.2f %.2f %.2f\n", n, n > 0 ? latencies[n / 2] : 0,
                   n > 0 ? latencies[n * 99 / 100] : 0, n > 0 ? latencies.back() : 0);
      if (std::fflush(out) != 0) return 1;
    }
    std::this_thread::sleep_for(2ms);
  }
}

// ---- The daemon ----------------------------------------------------------------------------

int run_daemon(const Setting& setting, int from_workers, int to_workers) {
  const StatePaths paths(setting.folder);
  StoreOptions options;
  options.state_dir = setting.folder;
  options.queued_jobs_max = int64_t{1} << 40;
  auto opened = Store::open(options);
  auto endpoint = WorkerEndpoint::open(setting.folder, "127.0.0.1:0", "");
  if (!opened.ok() || !endpoint.ok() || !paths.create(local_files()).ok()) {
    std::fprintf(stderr, "no state folder in %s\n", setting.folder.c_str());
    return 1;
  }
  Store& store = **opened;
  NewDataset dataset;
  dataset.project = "default";
  dataset.id = "digits";
  dataset.digest = "d1";
  (void)store.datasets().create(dataset);
  (void)answer_of(store.datasets(), &DatasetStore::set_ready, "d1", v1::DatasetSchema(), 1);
  SupervisorOptions watch;
  watch.log_dir = paths.logs();
  Supervisor supervisor(watch);
  Executor executor(4, 1024), transfers(2, 1024);
  DiskWatch disk(setting.folder, 1, [](const auto&) { return int64_t{1} << 40; });
  WorkerFiles files(supervisor, local_files(), disk);
  const auto service = make_remote_service(supervisor, executor, files, transfers);
  auto listener = Listener::open_workers("127.0.0.1:0", (*endpoint)->key_pem(),
                                         (*endpoint)->certificate_pem(), service.get());
  if (!listener.ok()) return 1;
  (*endpoint)->set_port((*listener)->port());
  const std::string certificate = setting.folder + "/certificate.pem";
  std::ofstream(certificate) << (*endpoint)->certificate_pem();

  std::FILE* out = ::fdopen(to_workers, "w");
  std::FILE* in = ::fdopen(from_workers, "r");
  std::fprintf(out, "%s %s\n", (*endpoint)->attach_address().c_str(), certificate.c_str());
  const auto trouble = std::make_shared<HostTrouble>();
  std::vector<std::shared_ptr<TrainTask>> owners;
  for (int i = 0; i < setting.workers; ++i) {
    NewJob job;
    job.project = "default";
    job.id = "job-" + std::to_string(i);
    job.spec.mutable_dataset()->set_name("projects/default/datasets/digits@1");
    job.spec.mutable_model()->mutable_mlp()->add_hidden(256);
    job.spec.mutable_recipe()->set_steps(1'000'000);
    job.plan.set_steps_total(1'000'000);
    const Result<Job> submitted = store.jobs().submit(std::move(job));
    if (!submitted.ok()) return 1;
    const Result<Job> started =
        store.jobs().start_attempt(submitted->uid, {"clusters/cluster"}, "", "R", "M");
    if (!started.ok()) return 1;
    const std::string task = started->uid + "-1";
    owners.push_back(std::make_shared<TrainTask>(
        store, supervisor, system_clock(), *started,
        TrainTaskOptions{paths, "d1", {}, 1, false, trouble, false, true}, [](bool) {}));
    const std::string secret = (*endpoint)->enrolment_secret(task);
    supervisor.add_remote(
        {task, "train", owners.back(), sha256_hex(secret), "", 600'000, [](const std::string&) {}});
    std::fprintf(out, "%s %s\n", task.c_str(), secret.c_str());
  }
  const int64_t memory_before = number_in("/proc/self/status", "VmRSS:");
  const double cpu_before = cpu_seconds();
  const Steady::time_point begin = Steady::now();
  std::fflush(out);
  int came = 0;
  if (std::fscanf(in, "%d", &came) != 1) return 1;
  std::printf("%d of %d workers have come in %.1f s, %.2f ms of CPU each; %.0f kB of memory each\n",
              came, setting.workers, std::chrono::duration<double>(Steady::now() - begin).count(),
              1e3 * (cpu_seconds() - cpu_before) / setting.workers,
              static_cast<double>(number_in("/proc/self/status", "VmRSS:") - memory_before) /
                  setting.workers);
  int64_t reports = 0;
  double cpu = 0, passed = 0, p50 = 0, p99 = 0, most = 0;
  int64_t written = 0;
  Steady::time_point from;
  const int warm = 3;
  for (int second = 0; second < static_cast<int>(setting.seconds) + warm; ++second) {
    size_t n = 0;
    double a = 0, b = 0, c = 0;
    if (std::fscanf(in, "%zu %lf %lf %lf", &n, &a, &b, &c) != 4) return 1;
    if (second < warm) {
      from = Steady::now();
      cpu = cpu_seconds();
      written = written_bytes();
      continue;
    }
    reports += static_cast<int64_t>(n);
    p50 = std::max(p50, a);
    p99 = std::max(p99, b);
    most = std::max(most, c);
  }
  passed = std::chrono::duration<double>(Steady::now() - from).count();
  cpu = cpu_seconds() - cpu;
  written = written_bytes() - written;
  const double steps =
      static_cast<double>(reports) * setting.steps_per_second / setting.reports_per_second;
  std::printf(
      "%.0f reports/s acknowledged of %.0f sent, %.1f us of CPU each, %.2f of a core in all; the "
      "worst "
      "second's p50 %.1f ms, p99 %.1f ms, most %.1f ms; %.2f MB/s written, %.0f bytes a step\n",
      static_cast<double>(reports) / passed, setting.workers * setting.reports_per_second,
      1e6 * cpu / static_cast<double>(std::max<int64_t>(1, reports)), cpu / passed, p50, p99, most,
      static_cast<double>(written) / 1e6 / passed,
      static_cast<double>(written) / std::max(1.0, steps));
  std::fflush(stdout);
  (*listener).reset();
  executor.stop();
  transfers.stop();
  supervisor.release();
  return 0;
}

int run(int argc, char** argv) {
  Setting setting;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!name.starts_with("--") && setting.folder.empty()) {
      setting.folder = name;
      continue;
    }
    if (i + 1 == argc) {
      std::fprintf(stderr, "%s: expected a value\n", name.c_str());
      return 2;
    }
    const double value = std::atof(argv[++i]);
    if (name == "--workers") {
      setting.workers = std::max(1, static_cast<int>(value));
    } else if (name == "--reports-per-second") {
      setting.reports_per_second = value;
    } else if (name == "--steps-per-second") {
      setting.steps_per_second = value;
    } else if (name == "--seconds") {
      setting.seconds = value;
    } else {
      std::fprintf(stderr, "%s is unknown\n", name.c_str());
      return 2;
    }
  }
  if (setting.folder.empty()) {
    std::fprintf(stderr, "expected a folder for the state, which is made\n");
    return 2;
  }
  ::signal(SIGPIPE, SIG_IGN);
  spdlog::set_level(spdlog::level::warn);
  int to_workers[2], to_daemon[2];
  if (::pipe(to_workers) != 0 || ::pipe(to_daemon) != 0) return 1;
  const pid_t child = ::fork();  // before any thread exists
  if (child == 0) {
    ::close(to_workers[1]);
    ::close(to_daemon[0]);
    std::_Exit(run_workers(setting, to_workers[0], to_daemon[1]));
  }
  ::close(to_workers[0]);
  ::close(to_daemon[1]);
  const int code = run_daemon(setting, to_daemon[0], to_workers[1]);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return code;
}

}  // namespace
}  // namespace trainyard::server

int main(int argc, char** argv) { return trainyard::server::run(argc, argv); }
