// Tests with a store whose commits stall: the supervisor continues with everything that needs no
// commit. Changes that waited for the store are made in order once it works again.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "server/dispatch/train_task.h"
#include "server/protocol/report_spool.h"
#include "server/protocol/versions.h"
#include "src/base/sha256.h"
#include "tests/server/fault_vfs.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

/// A one-shot task that needs no store.
class OneShotTask final : public TaskOwner {
 public:
  Result<v1::Assignment> assignment() override { return v1::Assignment(); }
  void report(const v1::WorkerReport&, Done<void> done) override { done({}); }
  void ended(const TaskEnd& end, TaskHold) override {
    const std::lock_guard lock(mu_);
    end_ = end;
  }
  std::optional<TaskEnd> end() {
    const std::lock_guard lock(mu_);
    return end_;
  }

 private:
  std::mutex mu_;
  std::optional<TaskEnd> end_;
};

/// While the gate is closed, no sync of the store returns.
class Gate {
 public:
  void close() {
    const std::lock_guard lock(mu_);
    closed_ = true;
  }
  void open() {
    {
      const std::lock_guard lock(mu_);
      closed_ = false;
    }
    changed_.notify_all();
  }
  int pass(const FileOperation& operation) {
    std::unique_lock lock(mu_);
    if (operation.kind == FileOperation::Kind::kSync) {
      changed_.wait(lock, [this] { return !closed_; });
    }
    return SQLITE_OK;
  }

 private:
  std::mutex mu_;
  std::condition_variable changed_;
  bool closed_ = false;
};

class ServiceStalledStore : public ::testing::Test {
 protected:
  void SetUp() override {
    vfs_.set_hook([this](const FileOperation& operation) { return gate_.pass(operation); });
    StoreOptions options = small_options(directory_.path());
    options.vfs = vfs_.name();
    store_ = open_or_die(options);
    ASSERT_TRUE(paths_.create(local_files()).ok());
    options_.worker = directory_.path() / "worker";
    options_.log_dir = paths_.logs();
    options_.kill_grace_ms = 100;
    options_.unattended_ms = 60'000;
    // The worker does nothing until it gets its nonce, and then creates a file.
    std::ofstream(options_.worker) << "#!/bin/sh\nread nonce || exit 9\n: > "
                                   << directory_.path().string() << "/$4.begun\nexec sleep 1000\n";
    ::chmod(options_.worker.c_str(), 0700);
  }
  void start_supervisor(int64_t silence_ms = 60'000) {
    options_.silence_ms = silence_ms;
    supervisor_ = std::make_unique<Supervisor>(options_);
  }
  void TearDown() override {
    gate_.open();
    supervisor_.reset();
    store_.reset();
  }

  /// Submits a job and brings it to STARTING, with a worker.
  Job start_job(const std::string& id, const std::string& nonce) {
    const Job queued = store_->jobs().submit(new_job(id)).value();
    Job job = store_->jobs()
                  .start_attempt(queued.uid, {"devices/cpu"}, sha256_hex(nonce), "DEVICE_ASSIGNED",
                                 "On the CPU.")
                  .value();
    std::filesystem::create_directories(paths_.job(job.uid));
    return job;
  }
  void start_worker(const Job& job, const std::string& nonce) {
    Supervisor::NewTask task;
    task.id = job.id;
    task.kind = "train";
    task.outlives = true;
    task.nonce = nonce;
    const TrainTaskOptions options{paths_, "digest", {}, 1, false, trouble_, false};
    task.owner = std::make_shared<TrainTask>(*store_, *supervisor_, system_clock(), job, options,
                                             [this](bool) { ++gone_; });
    supervisor_->start(std::move(task));
  }
  std::shared_ptr<OneShotTask> start_one_shot(int64_t time_max_ms = 0) {
    auto one_shot = std::make_shared<OneShotTask>();
    Supervisor::NewTask task;
    task.kind = "one_shot";
    task.owner = one_shot;
    task.time_max_ms = time_max_ms;
    supervisor_->start(std::move(task));
    return one_shot;
  }
  bool has_begun(const Job& job) const {
    return std::filesystem::exists(directory_.path() / (job.id + ".begun"));
  }
  pid_t stored_pid(const Job& job) {
    return store_->jobs().find_attempt(job.uid, job.attempt).value().pid;
  }
  JobState state_of(const Job& job) { return store_->jobs().find_uid(job.uid).value().state; }
  /// Writes `count` reports to the worker's spool, as if the daemon had received none of them.
  void write_spool(const Job& job, int count) {
    ReportSpool spool = ReportSpool::create(paths_.spool(job.uid, job.attempt)).value();
    for (int number = 1; number <= count; ++number) {
      v1::WorkerReport report;
      report.set_number(number);
      if (number == 1) {
        report.mutable_started()->mutable_plan()->set_steps_total(7);
      } else {
        report.mutable_log()->set_text("line " + std::to_string(number));
      }
      ASSERT_TRUE(spool.append(report).ok());
    }
  }

  TemporaryDirectory directory_;
  FaultVfs vfs_{"stalled_store"};
  Gate gate_;
  const StatePaths paths_{directory_.path()};
  SupervisorOptions options_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Supervisor> supervisor_;
  const std::shared_ptr<HostTrouble> trouble_ = std::make_shared<HostTrouble>();
  std::atomic<int> gone_{0};
};

TEST_F(ServiceStalledStore, DoesNotDelayStartsEndsAndDeadlinesOfOtherWorkers) {
  start_supervisor(/*silence_ms=*/2'000);
  const Job fresh = start_job("fresh", "nonce");
  gate_.close();
  start_worker(fresh, "nonce");
  const auto late = start_one_shot(/*time_max_ms=*/100);
  const auto silent = start_one_shot();
  EXPECT_TRUE(eventually([&] { return late->end().has_value(); }));
  EXPECT_TRUE(late->end()->late);
  EXPECT_TRUE(eventually([&] { return silent->end().has_value(); }));
  EXPECT_TRUE(silent->end()->silent);
  // The worker of "fresh" was silent just as long, but only because it waited for the daemon.
  EXPECT_EQ(supervisor_->task_count(), 1);
  EXPECT_FALSE(has_begun(fresh)) << "before its process is durable";
  EXPECT_EQ(stored_pid(fresh), 0);
  gate_.open();
  EXPECT_TRUE(eventually([&] { return has_begun(fresh); }));
  EXPECT_GT(stored_pid(fresh), 0);
  EXPECT_EQ(gone_, 0);
}

TEST_F(ServiceStalledStore, ReportsOfAWorkerAreStoredInOrderOnceTheStoreAnswers) {
  constexpr int kReports = 300;  // more than the supervisor takes in one batch
  start_supervisor();
  const Job job = start_job("job", "nonce");
  start_worker(job, "nonce");
  ASSERT_TRUE(eventually([&] { return has_begun(job); }));
  v1::AttachRequest attach;
  attach.set_task(job.id);
  attach.set_nonce("nonce");
  attach.set_protocol_min(kProtocols.oldest);
  attach.set_protocol_max(kProtocols.newest);
  ASSERT_TRUE(supervisor_->attach(attach).ok());
  write_spool(job, kReports);
  gate_.close();
  ::kill(stored_pid(job), SIGKILL);
  const auto other = start_one_shot(/*time_max_ms=*/100);
  EXPECT_TRUE(eventually([&] { return other->end().has_value(); }));
  EXPECT_EQ(gone_, 0);
  EXPECT_FALSE(supervisor_->wait_idle(1)) << "its end is not stored";
  EXPECT_EQ(state_of(job), JobState::kStarting);
  gate_.open();
  EXPECT_TRUE(supervisor_->wait_idle(60'000));
  EXPECT_EQ(gone_, 1);
  const std::vector<v1::Event> events = all_events(*store_, job.uid);
  std::vector<std::string> lines;
  std::vector<v1::JobState> states;
  for (const v1::Event& event : events) {
    if (event.has_log()) lines.push_back(event.log().text());
    if (!event.has_state()) continue;
    states.push_back(event.state().state());
    EXPECT_EQ(lines.size(), states.size() < 4 ? 0u : size_t{kReports - 1}) << states.size();
  }
  EXPECT_EQ(states, (std::vector<v1::JobState>{v1::QUEUED, v1::STARTING, v1::RUNNING, v1::QUEUED}));
  ASSERT_EQ(lines.size(), size_t{kReports - 1});
  for (int i = 0; i < kReports - 1; ++i) {
    EXPECT_EQ(lines[static_cast<size_t>(i)], "line " + std::to_string(i + 2));
  }
  EXPECT_EQ(store_->jobs().find_uid(job.uid).value().reason, "WORKER_KILLED");
  EXPECT_FALSE(std::filesystem::exists(paths_.spool(job.uid, job.attempt)));
}

TEST_F(ServiceStalledStore, ADaemonLeavesNoUnrecordedWorker) {
  start_supervisor();
  const Job job = start_job("job", "nonce");
  gate_.close();
  start_worker(job, "nonce");
  const auto begun_later = start_one_shot(/*time_max_ms=*/100);
  ASSERT_TRUE(eventually([&] { return begun_later->end().has_value(); }));
  std::atomic<bool> released = false;
  std::thread leaving([&] {
    supervisor_->release();
    released = true;
  });
  const auto during = start_one_shot(/*time_max_ms=*/100);
  EXPECT_TRUE(eventually([&] { return during->end().has_value(); }));
  EXPECT_FALSE(released);
  gate_.open();
  leaving.join();
  EXPECT_EQ(supervisor_->task_count(), 0);
  EXPECT_TRUE(eventually([&] { return has_begun(job); })) << "it has its nonce, and goes on";
  const pid_t pid = stored_pid(job);
  EXPECT_GT(pid, 0);
  EXPECT_EQ(::kill(pid, SIGKILL), 0);
}

}  // namespace
}  // namespace trainyard::server
