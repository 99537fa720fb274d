// Tests of the supervisor without gRPC, so that the thread sanitizer sees all code. The worker is a
// shell script that passes its nonce to the test, and the test makes the worker's calls.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "server/processes/supervisor.h"
#include "server/protocol/versions.h"
#include "src/base/files.h"
#include "src/base/sha256.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

class Owner final : public TaskOwner {
 public:
  void spawned(pid_t pid, int64_t start_time, Done<void> recorded) override {
    {
      const std::lock_guard lock(mu_);
      pid_ = pid;
      EXPECT_GT(start_time, 0);
    }
    recorded(spawned_status);
  }
  Result<v1::Assignment> assignment() override {
    v1::Assignment a;
    a.mutable_measure()->set_threads(3);
    return a;
  }
  void report(const v1::WorkerReport&, Done<void> done) override {
    {
      const std::lock_guard lock(mu_);
      ++reports_;
    }
    done({});
  }
  void ended(const TaskEnd& end, TaskHold) override {
    const std::lock_guard lock(mu_);
    EXPECT_FALSE(end_) << "a task ends once";
    end_ = end;
    changed_.notify_all();
  }
  TaskEnd wait() {
    std::unique_lock lock(mu_);
    EXPECT_TRUE(changed_.wait_for(lock, patience(), [this] { return end_.has_value(); }));
    return end_.value_or(TaskEnd{});
  }
  pid_t pid() {
    const std::lock_guard lock(mu_);
    return pid_;
  }

  Status spawned_status;

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  std::optional<TaskEnd> end_;
  pid_t pid_ = 0;
  int reports_ = 0;
};

class Sink final : public CommandSink {
 public:
  void send(const v1::WorkerCommand& command) override {
    if (command.has_stop()) stops.fetch_add(1);
  }
  std::atomic<int> stops{0};
};

class ServiceSupervisor : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("sup" + std::to_string(::getpid()) + "-" + std::to_string(++count_));
    std::filesystem::create_directories(root_);
    options_.worker = root_ / "worker";
    options_.log_dir = root_;
    options_.silence_ms = 10'000;
    options_.stop_grace_ms = 600;
    options_.kill_grace_ms = promised(std::chrono::milliseconds(100)).count();
  }
  void TearDown() override {
    supervisor_.reset();
    std::filesystem::remove_all(root_);
  }

  /// Sets a worker that writes its nonce to a file and then runs `script`.
  void start_supervisor(const std::string& script) {
    std::ofstream(options_.worker)
        << "#!/bin/sh\nread nonce\necho $nonce > " << root_.string() << "/nonce.tmp\nmv "
        << root_.string() << "/nonce.tmp " << root_.string() << "/$4\n"
        << script << "\n";
    ::chmod(options_.worker.c_str(), 0700);
    supervisor_ = std::make_unique<Supervisor>(options_);
  }
  std::string start(std::shared_ptr<Owner> owner, int64_t time_max_ms = 0,
                    std::vector<std::string> gpus = {}) {
    Supervisor::NewTask task;
    task.kind = "test";
    task.owner = std::move(owner);
    task.time_max_ms = time_max_ms;
    task.gpus = std::move(gpus);
    return supervisor_->start(std::move(task));
  }
  std::string nonce_of(const std::string& task) {
    Result<std::string> text = std::string();
    const bool is_there = eventually([&] {
      text = read_file(root_ / task, 1000);
      return text.ok();
    });
    EXPECT_TRUE(is_there) << "the worker did not get its nonce";
    return is_there ? text->substr(0, text->find('\n')) : "";
  }
  static v1::AttachRequest attach_request(const std::string& task, const std::string& nonce,
                                          ProtocolRange protocols = kProtocols) {
    v1::AttachRequest request;
    request.set_task(task);
    request.set_nonce(nonce);
    request.set_version("0.0.7");
    request.set_protocol_min(protocols.oldest);
    request.set_protocol_max(protocols.newest);
    return request;
  }
  /// Builds the first message of a stream.
  static v1::WorkerReport hello(const std::string& task, const std::string& nonce,
                                int32_t protocol = kProtocols.newest) {
    v1::WorkerReport report;
    report.set_task(task);
    report.set_nonce(nonce);
    report.set_protocol(protocol);
    report.mutable_heartbeat();
    return report;
  }
  void adopt(const std::string& task, const std::string& nonce, pid_t pid,
             std::shared_ptr<Owner> owner) {
    supervisor_->adopt(
        {task, "test", std::move(owner), sha256_hex(nonce), pid, process_start_time(pid)});
  }

  static inline int count_ = 0;
  std::filesystem::path root_;
  SupervisorOptions options_;
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(ServiceSupervisor, OnlyTheWorkerWithTheNonceMayAttach) {
  start_supervisor("sleep 1000");
  auto owner = std::make_shared<Owner>();
  auto sink = std::make_shared<Sink>();
  const std::string task = start(owner);
  const std::string nonce = nonce_of(task);
  EXPECT_EQ(nonce.size(), 64u);
  EXPECT_EQ(supervisor_->attach(attach_request(task, "guess")).error().reason, "ATTEMPT_FENCED");
  EXPECT_EQ(supervisor_->attach(attach_request("other", nonce)).error().reason, "ATTEMPT_FENCED");
  EXPECT_EQ(supervisor_->connect(hello(task, nonce), sink).error().reason, "ATTEMPT_FENCED")
      << "not before it attached";
  const Result<v1::Assignment> assignment = supervisor_->attach(attach_request(task, nonce));
  ASSERT_TRUE(assignment.ok());
  EXPECT_EQ(assignment->measure().threads(), 3);
  EXPECT_EQ(assignment->heartbeat_interval_ms(), options_.heartbeat_ms);
  EXPECT_EQ(supervisor_->connect(hello(task, "guess"), sink).error().reason, "ATTEMPT_FENCED");
  EXPECT_TRUE(supervisor_->connect(hello(task, nonce), sink).ok());
  supervisor_->kill_all();
  const TaskEnd end = owner->wait();
  EXPECT_TRUE(end.exit.signalled);
  EXPECT_FALSE(end.outcome_taken);
  EXPECT_EQ(supervisor_->attach(attach_request(task, nonce)).error().reason, "ATTEMPT_FENCED")
      << "an attempt that is over";
}

// An index may mean another GPU to CUDA than to NVML if some GPUs are hidden, or after a reboot.
TEST_F(ServiceSupervisor, AWorkerSeesOnlyTheGpusOfItsTask) {
  ::setenv("CUDA_VISIBLE_DEVICES", "0,1,2", 1);
  start_supervisor("echo sees $CUDA_VISIBLE_DEVICES");
  const auto sees = [&](std::vector<std::string> gpus) {
    auto owner = std::make_shared<Owner>();
    start(owner, 0, std::move(gpus));
    return owner->wait().output_tail;
  };
  EXPECT_EQ(sees({"GPU-b", "GPU-a"}), "sees GPU-b,GPU-a\n");
  EXPECT_EQ(sees({}), "sees 0,1,2\n");
  EXPECT_EQ(sees({""}), "sees 0,1,2\n") << "a device without a UUID";
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(Protocol, BothSidesAgreeOnTheNewestVersionThatTheyShare) {
  constexpr ProtocolRange kFirst{1, 1}, kNext{1, 2}, kLater{2, 3};
  EXPECT_EQ(agree(kFirst, kNext), 1);
  EXPECT_EQ(agree(kNext, kFirst), 1);
  EXPECT_EQ(agree(kNext, kLater), 2);
  EXPECT_EQ(agree(kFirst, kLater), std::nullopt);
  EXPECT_EQ(agree({0, 0}, kFirst), std::nullopt) << "a range that was not set";
}

TEST_F(ServiceSupervisor, F38BuildsMayDifferIfTheyShareAProtocol) {
  start_supervisor("sleep 1000");
  auto owner = std::make_shared<Owner>();
  const std::string task = start(owner);
  const std::string nonce = nonce_of(task);
  const auto chosen = [&](ProtocolRange theirs) {
    const Result<v1::Assignment> a = supervisor_->attach(attach_request(task, nonce, theirs));
    return a.ok() ? a->protocol() : -1;
  };
  EXPECT_EQ(chosen({1, 99}), kProtocols.newest);
  EXPECT_EQ(chosen({kProtocols.newest, kProtocols.newest + 1}), kProtocols.newest);
  const Result<v1::Assignment> refused = supervisor_->attach(
      attach_request(task, nonce, {kProtocols.newest + 1, kProtocols.newest + 2}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "VERSION_SKEW");
  EXPECT_EQ(refused.error().metadata.at("worker"), "0.0.7");
  EXPECT_EQ(refused.error().metadata.at("daemon"), TRAINYARD_VERSION);
  supervisor_->kill_all();
  EXPECT_TRUE(owner->wait().version_skew);
}

TEST_F(ServiceSupervisor, ATaskThatOutlivesItsDaemonIsAdoptedByTheNext) {
  options_.unattended_ms = 60'000;
  start_supervisor("sleep 1000");
  auto owner = std::make_shared<Owner>();
  Supervisor::NewTask fresh;
  fresh.id = "job-1";
  fresh.kind = "test";
  fresh.outlives = true;
  fresh.owner = owner;
  const std::string task = supervisor_->start(std::move(fresh));
  const std::string nonce = nonce_of(task);
  const Result<v1::Assignment> assignment = supervisor_->attach(attach_request(task, nonce));
  EXPECT_EQ(assignment.value().unattended_ms(), 60'000);
  const pid_t pid = owner->pid();
  supervisor_->release();
  EXPECT_EQ(supervisor_->task_count(), 0);
  supervisor_ = std::make_unique<Supervisor>(options_);

  auto next = std::make_shared<Owner>();
  auto sink = std::make_shared<Sink>();
  adopt(task, nonce, pid, next);
  EXPECT_EQ(supervisor_->connect(hello(task, "guess"), sink).error().reason, "ATTEMPT_FENCED");
  EXPECT_EQ(supervisor_->connect(hello(task, nonce, 99), sink).error().reason, "VERSION_SKEW");
  EXPECT_TRUE(supervisor_->connect(hello(task, nonce), sink).ok());
  supervisor_->stop(task, "pause");
  EXPECT_EQ(sink->stops, 1);
  const TaskEnd end = next->wait();
  EXPECT_TRUE(end.stop_asked);
  EXPECT_FALSE(end.lost_from_sight);
  EXPECT_EQ(next->pid(), 0) << "it was spawned once";
}

TEST_F(ServiceSupervisor, AWorkerThatEndedBeforeAdoptionIsLostFromSight) {
  start_supervisor("sleep 1000");
  auto owner = std::make_shared<Owner>();
  adopt("job-1", "nonce", 0, owner);
  EXPECT_TRUE(owner->wait().lost_from_sight);
  // The PID and start time are right, but the process does not have the task's ID in its
  // environment.
  auto other = std::make_shared<Owner>();
  adopt("job-2", "nonce", ::getpid(), other);
  EXPECT_TRUE(other->wait().lost_from_sight);
  // The task's process never reports, so it is killed.
  options_.silence_ms = 200;
  options_.unattended_ms = 60'000;
  start_supervisor("trap '' TERM; while :; do sleep 1; done");
  auto silent = std::make_shared<Owner>();
  Supervisor::NewTask fresh;
  fresh.id = "job-3";
  fresh.outlives = true;
  fresh.owner = silent;
  supervisor_->start(std::move(fresh));
  while (silent->pid() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const pid_t pid = silent->pid();
  supervisor_->release();
  supervisor_ = std::make_unique<Supervisor>(options_);
  auto next = std::make_shared<Owner>();
  adopt("job-3", "nonce", pid, next);
  const TaskEnd end = next->wait();
  EXPECT_TRUE(end.silent);
  EXPECT_FALSE(end.lost_from_sight);
}

TEST_F(ServiceSupervisor, WithoutUnattendedTimeAWorkerEndsWithItsDaemon) {
  start_supervisor("sleep 1000");  // unattended_ms is 0
  auto owner = std::make_shared<Owner>();
  Supervisor::NewTask fresh;
  fresh.id = "job-1";
  fresh.outlives = true;
  fresh.owner = owner;
  const std::string task = supervisor_->start(std::move(fresh));
  EXPECT_EQ(supervisor_->attach(attach_request(task, nonce_of(task))).value().unattended_ms(), 0);
  supervisor_->release();
  EXPECT_EQ(supervisor_->task_count(), 1) << "nothing was left behind";
  supervisor_->kill_all();
  EXPECT_TRUE(owner->wait().exit.signalled);
}

TEST_F(ServiceSupervisor, AnAttachedWorkerIsToldToStopBeforeItIsSignalled) {
  start_supervisor("trap 'echo got TERM; exit 3' TERM; sleep 1000 & wait");
  auto owner = std::make_shared<Owner>();
  auto sink = std::make_shared<Sink>();
  const std::string task = start(owner);
  const std::string nonce = nonce_of(task);
  ASSERT_TRUE(supervisor_->attach(attach_request(task, nonce)).ok());
  ASSERT_TRUE(supervisor_->connect(hello(task, nonce), sink).ok());
  const auto begin = std::chrono::steady_clock::now();
  supervisor_->stop(task, "cancel");
  supervisor_->stop(task, "cancel");
  EXPECT_EQ(sink->stops, 1) << "it is told once";
  const TaskEnd end = owner->wait();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(190));
  EXPECT_TRUE(end.stop_asked);
  EXPECT_EQ(end.exit.number, 3);
  EXPECT_NE(end.output_tail.find("got TERM"), std::string::npos);
  supervisor_->stop(task, "cancel");  // the task has ended: no error
}

TEST_F(ServiceSupervisor, AStopBeforeTheStreamIsDeliveredWithIt) {
  start_supervisor("trap '' TERM; sleep 1000");
  auto owner = std::make_shared<Owner>();
  auto sink = std::make_shared<Sink>();
  const std::string task = start(owner);
  const std::string nonce = nonce_of(task);
  ASSERT_TRUE(supervisor_->attach(attach_request(task, nonce)).ok());
  supervisor_->stop(task, "drain", 2000);
  ASSERT_TRUE(supervisor_->connect(hello(task, nonce), sink).ok());
  EXPECT_EQ(sink->stops, 1);
  supervisor_->kill_all();
  owner->wait();
}

TEST_F(ServiceSupervisor, F12AWorkerThatIgnoresEverythingIsKilled) {
  const std::filesystem::path deaf = root_ / "deaf";
  start_supervisor("trap '' TERM; : > " + deaf.string() + "; sleep 1000 & wait; wait");
  auto owner = std::make_shared<Owner>();
  const std::string task = start(owner);
  while (!std::filesystem::exists(deaf)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  supervisor_->stop(task, "cancel");
  const TaskEnd end = owner->wait();
  EXPECT_EQ(end.exit.number, SIGKILL);
  EXPECT_TRUE(supervisor_->wait_idle(std::chrono::milliseconds(patience()).count()));
  EXPECT_EQ(supervisor_->task_count(), 0);
}

TEST_F(ServiceSupervisor, F10AStoppedProcessIsSilentAndKilled) {
  options_.silence_ms = 300;
  start_supervisor("kill -STOP $$");
  auto owner = std::make_shared<Owner>();
  start(owner);
  const TaskEnd end = owner->wait();
  EXPECT_TRUE(end.silent);
  EXPECT_EQ(end.exit.number, SIGKILL);
}

TEST_F(ServiceSupervisor, AReportKeepsAWorkerAlive) {
  const auto silence = promised(std::chrono::milliseconds(400));
  options_.silence_ms = silence.count();
  start_supervisor("sleep 1000");
  auto owner = std::make_shared<Owner>();
  const std::string task = start(owner);
  const std::string nonce = nonce_of(task);
  ASSERT_TRUE(supervisor_->attach(attach_request(task, nonce)).ok());
  v1::WorkerReport beat;
  beat.mutable_heartbeat();
  const auto end = std::chrono::steady_clock::now() + 2 * silence;
  while (std::chrono::steady_clock::now() < end) {
    supervisor_->report(task, beat, [](Status s) { EXPECT_TRUE(s.ok()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(supervisor_->task_count(), 1) << "it was heard of all the time";
  EXPECT_TRUE(owner->wait().silent);
}

TEST_F(ServiceSupervisor, ATaskIsStoppedAtItsTimeLimit) {
  start_supervisor("sleep 1000");
  auto owner = std::make_shared<Owner>();
  start(owner, 200);
  const TaskEnd end = owner->wait();
  EXPECT_TRUE(end.late);
  EXPECT_FALSE(end.silent);
}

TEST_F(ServiceSupervisor, AMissingProgramEndsAtOnceWithTheReason) {
  options_.worker = root_ / "nothing";
  supervisor_ = std::make_unique<Supervisor>(options_);
  auto owner = std::make_shared<Owner>();
  start(owner);
  const TaskEnd end = owner->wait();
  ASSERT_TRUE(end.start_error.has_value());
  EXPECT_EQ(end.start_error->reason, "WORKER_START_FAILED");
}

TEST_F(ServiceSupervisor, AWorkerThatCouldNotBeRecordedGetsNoNonce) {
  start_supervisor("sleep 1000");
  auto owner = std::make_shared<Owner>();
  owner->spawned_status = make_error(ErrorCode::kUnavailable, "STORE_FAILED", "disk");
  const std::string task = start(owner);
  EXPECT_TRUE(owner->wait().exit.signalled);
  EXPECT_FALSE(std::filesystem::exists(root_ / task));
}

TEST_F(ServiceSupervisor, F13ChildrenOfAWorkerEndWithIt) {
  start_supervisor("setsid sh -c 'echo $$ > " + root_.string() + "/left.tmp; mv " + root_.string() +
                   "/left.tmp " + root_.string() + "/left; exec sleep 1000' &\nwhile [ ! -e " +
                   root_.string() + "/left ]; do sleep 0.01; done\nexit 0");
  auto owner = std::make_shared<Owner>();
  start(owner);
  EXPECT_EQ(owner->wait().exit.number, 0);
  const Result<std::string> left = read_file(root_ / "left", 100);
  ASSERT_TRUE(left.ok());
  const std::string stat = "/proc/" + std::to_string(std::stoi(*left)) + "/stat";
  // A killed process may still be ending.
  EXPECT_TRUE(eventually([&] {
    const Result<std::string> state = read_file(stat, 4096);
    return !state.ok() || state->find(") Z") != std::string::npos;
  }));
}

/// Runs `command` in a shell with `tag` in its environment. Its stdin is open until the test ends.
class Shell {
 public:
  Shell(const std::string& tag, const std::string& command)
      : input_(::popen(("env " + tag + " sh -c '" + command + "'").c_str(), "w")) {}
  ~Shell() { ::pclose(input_); }
  Shell(const Shell&) = delete;

 private:
  std::FILE* input_;
};

TEST_F(ServiceSupervisor, F13ASubreaperFindsOrphansAmongItsChildren) {
  options_.adopt_orphans = true;
  // The worker starts a detached process, which starts another one. When the first is killed, the
  // second becomes a child of this process.
  const std::string root = root_.string();
  start_supervisor("setsid sh -c 'echo $$ > " + root + "/one; setsid sh -c \"echo \\$\\$ > " +
                   root + "/two.tmp; mv " + root + "/two.tmp " + root +
                   "/two; exec sleep 1000\" & exec sleep 1000' &\nwhile [ ! -e " + root +
                   "/two ]; do sleep 0.01; done\nexit 0");
  struct stat folder {};
  ASSERT_EQ(::stat(root_.c_str(), &folder), 0);
  const std::string tag =
      "TRAINYARD_TASK=mine@" + std::to_string(folder.st_dev) + ":" + std::to_string(folder.st_ino);
  // This process has the tag but is no child of ours: only a scan of all processes would find it.
  const Shell elsewhere("A=b",
                        "env " + tag + " sh -c \"echo \\$\\$ > " + root + "/far; exec cat\"; true");
  while (!std::filesystem::exists(root_ / "far")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  auto owner = std::make_shared<Owner>();
  Supervisor::NewTask task;
  task.id = "mine";
  task.owner = owner;
  supervisor_->start(std::move(task));
  EXPECT_EQ(owner->wait().exit.number, 0);
  const auto state_of = [&](const char* name) -> std::string {
    const Result<std::string> pid = read_file(root_ / name, 100);
    if (!pid.ok()) return "not started";
    const Result<std::string> stat =
        read_file("/proc/" + std::to_string(std::stoi(*pid)) + "/stat", 4096);
    return !stat.ok() || stat->find(") Z") != std::string::npos ? "gone" : "runs";
  };
  EXPECT_EQ(state_of("one"), "gone");
  EXPECT_EQ(state_of("two"), "gone");
  EXPECT_EQ(state_of("far"), "runs");
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(ServiceSupervisor, ManyAtOnceEndEachOnce) {
  start_supervisor("exit 5");
  std::vector<std::shared_ptr<Owner>> owners;
  std::vector<std::thread> threads;
  for (int i = 0; i < 24; ++i) owners.push_back(std::make_shared<Owner>());
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 24; i += 4)
        supervisor_->stop(start(owners[static_cast<size_t>(i)]), "cancel");
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& owner : owners) owner->wait();
  EXPECT_TRUE(supervisor_->wait_idle(std::chrono::milliseconds(patience()).count()));
}

}  // namespace
}  // namespace trainyard::server
