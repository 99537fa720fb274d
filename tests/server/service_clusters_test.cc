// Tests of an attempt's way through a cluster that replies, does not reply, refuses and forgets.
// The cluster is a list of scripted replies, and the test controls its clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "server/cluster/cluster_queue.h"
#include "server/cluster/clusters.h"
#include "src/base/check.h"
#include "src/base/mutex.h"
#include "tests/server/fake_clock.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

using namespace std::chrono_literals;

Sighting sighting_of(PlacementHandle handle, Seen seen) {
  Sighting sighting;
  sighting.handle = std::move(handle);
  sighting.seen = seen;
  return sighting;
}

/// A cluster in memory: its jobs by name, and scripted replies.
class FakeCluster final : public Placement {
 public:
  struct Job {
    std::string id;
    Sighting sighting;
  };
  SubmitAnswer submit(const AttemptIntent& intent) override {
    MutexLock lock(mu);
    ++submits;
    if (submits > answers.size()) return make(intent.name);
    switch (answers[submits - 1]) {
      case 'r':
        return SubmitRefused{"too many nodes", SubmitRefused::Cause::kRequest};
      case 'b':
        return SubmitRefused{"too many jobs", SubmitRefused::Cause::kNow};
      case 'p':
        return SubmitRefused{"no such partition", SubmitRefused::Cause::kCluster};
      case 'l':  // the job is created, but the reply is lost
        (void)make(intent.name);
        return SubmitUnknown{"timed out"};
      case 'n':  // the submission is lost before it creates a job
        return SubmitUnknown{"timed out"};
      case 's':  // no reply before the daemon ends
        ended.wait(lock, [this]() TRAINYARD_REQUIRES(mu) { return stopped; });
        return SubmitUnknown{"the daemon ends"};
      default:
        return make(intent.name);
    }
  }
  Result<std::vector<Sighting>> observe(std::span<const PlacementHandle> handles) override {
    const MutexLock lock(mu);
    ++queries;
    if (silent) return make_error(ErrorCode::kUnavailable, "CLUSTER", "it does not answer");
    std::vector<Sighting> seen;
    for (const PlacementHandle& handle : handles) {
      const auto job = jobs.find(handle.name);
      if (job != jobs.end()) {
        seen.push_back(job->second.sighting);
      } else {
        seen.push_back(sighting_of(handle, Seen::kUnseen));
      }
    }
    return seen;
  }
  Status withdraw(const PlacementHandle& handle) override {
    const MutexLock lock(mu);
    withdrawn.push_back(handle.name);
    if (const auto job = jobs.find(handle.name); job != jobs.end() && obeys) {
      job->second.sighting.seen = Seen::kEnded;
      job->second.sighting.how = "CANCELLED";
    }
    return {};
  }
  Result<std::optional<PlacementHandle>> find(const std::string& name) override {
    const MutexLock lock(mu);
    ++finds;
    if (silent) return make_error(ErrorCode::kUnavailable, "CLUSTER", "it does not answer");
    const auto job = jobs.find(name);
    if (job == jobs.end()) return std::optional<PlacementHandle>();
    return std::optional(PlacementHandle{job->second.id, name});
  }
  std::string explain(const PlacementHandle&) override { return "so it was"; }
  PlacementCheck check() override { return {"a cluster of the test's", refuses_at_start}; }
  void stop() override {
    const MutexLock lock(mu);
    stopped = true;
    ended.notify_all();
  }

  void see(const std::string& name, Seen seen, std::string how = {}) {
    const MutexLock lock(mu);
    Sighting& s = jobs.at(name).sighting;
    s.seen = seen;
    s.how = std::move(how);
    s.nodes = "n7";
    s.reason = seen == Seen::kWaiting ? "Priority" : "";
  }
  template <typename T>
  T read(T FakeCluster::*member) {
    const MutexLock lock(mu);
    return this->*member;
  }
  void set_silent(bool is) {
    const MutexLock lock(mu);
    silent = is;
  }

  void set_obeys() {
    const MutexLock lock(mu);
    obeys = true;
  }

  Mutex mu;
  std::string answers;  // one character per submit; later submits succeed
  std::string refuses_at_start;
  std::map<std::string, Job> jobs;
  std::vector<std::string> withdrawn;
  size_t submits = 0;
  int queries = 0, finds = 0;
  bool silent = false, obeys = true, stopped = false;
  CondVar ended;

 private:
  SubmitAnswer make(const std::string& name) {
    Job job;
    job.id = std::to_string(100 + jobs.size());
    job.sighting = sighting_of({job.id, name}, Seen::kWaiting);
    job.sighting.reason = "Priority";
    jobs[name] = job;
    return Submitted{job.sighting.handle};
  }
};

class ClusterOwner final : public TaskOwner {
 public:
  Result<v1::Assignment> assignment() override { return v1::Assignment(); }
  void report(const v1::WorkerReport&, Done<void> done) override { done({}); }
  void ended(const TaskEnd& end, TaskHold) override {
    const MutexLock lock(mu_);
    end_ = end;
  }
  std::optional<TaskEnd> end() {
    const MutexLock lock(mu_);
    return end_;
  }

 private:
  Mutex mu_;
  std::optional<TaskEnd> end_;
};

class ClustersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SupervisorOptions options;
    options.log_dir = std::filesystem::temp_directory_path();
    supervisor_ = std::make_unique<Supervisor>(options, clock_);
  }
  void begin(const std::string& answers = "", const std::string& refuses_at_start = "") {
    auto placement = std::make_unique<FakeCluster>();
    cluster_ = placement.get();
    cluster_->answers = answers;
    cluster_->refuses_at_start = refuses_at_start;
    ClusterConfig config;
    config.name = "p";
    config.poll_seconds = 10;
    config.lease_seconds = 60;
    std::vector<Clusters::Cluster> clusters;
    clusters.push_back({config, std::move(placement)});
    clusters_ = std::make_unique<Clusters>(*supervisor_, clock_, std::move(clusters), [] {});
    clusters_->start();
  }
  std::shared_ptr<ClusterOwner> submit_attempt(const std::string& uid, std::string handle = {},
                                               bool may_exist = false) {
    auto owner = std::make_shared<ClusterOwner>();
    Supervisor::RemoteTask task;
    task.id = uid + "-1";
    task.owner = owner;
    task.lease_ms = 60'000;
    task.withdraw = [this, uid](const std::string&) { clusters_->withdraw("p", uid, 1); };
    supervisor_->add_remote(std::move(task));
    ClusterAttempt attempt;
    attempt.uid = uid;
    attempt.attempt = 1;
    attempt.job = "projects/default/jobs/" + uid;
    attempt.intent.name = "ty-" + uid;
    attempt.intent.task = uid + "-1";
    attempt.handle = std::move(handle);
    attempt.rest = rest_;
    attempt.may_exist = may_exist;
    attempt.found = [this](const std::string& id) {
      const MutexLock lock(mu_);
      found_ = id;
    };
    clusters_->submit("p", std::move(attempt));
    return owner;
  }
  /// Advances the clock and wakes the cluster's thread.
  void pass(int64_t seconds) {
    clock_.pass(seconds * 1'000'000);
    clusters_->withdraw("p", "nobody", 1);
  }
  /// Advances the clock in steps until the condition is true. The thread gets more real time in
  /// later steps.
  bool in_time(const std::function<bool()>& condition, int steps = 60) {
    for (int i = 0; i < steps; ++i) {
      if (condition()) return true;
      pass(10);
      for (int waits = 0; waits < 1 << std::min(i / 10, 6) && !condition(); ++waits) {
        std::this_thread::sleep_for(5ms);
      }
    }
    return eventually(condition);
  }
  std::string found() {
    const MutexLock lock(mu_);
    return found_;
  }
  ClusterSight sight(const std::string& uid) {
    return clusters_->find(uid).value_or(ClusterSight());
  }

  FakeClock clock_;
  DeviceBrief rest_;  // remaining time of the next job that is handed over
  std::unique_ptr<Supervisor> supervisor_;
  FakeCluster* cluster_ = nullptr;
  Mutex mu_;
  std::string found_;
  std::unique_ptr<Clusters> clusters_;
};

TEST_F(ClustersTest, AnAttemptWaitsRunsAndEnds) {
  begin();
  const auto owner = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return found() == "100"; }));
  ASSERT_TRUE(in_time([&] { return sight("a").reason == "Priority"; }));
  EXPECT_EQ(clusters_->waiting("p"), 1);
  EXPECT_EQ(clusters_->note("p"), "a cluster of the test's");
  cluster_->see("ty-a", Seen::kGranted);
  ASSERT_TRUE(in_time([&] { return sight("a").granted; }));
  EXPECT_EQ(sight("a").nodes, "n7");
  EXPECT_EQ(clusters_->waiting("p"), 0);
  cluster_->see("ty-a", Seen::kEnded, "NODE_FAIL");
  ASSERT_TRUE(in_time([&] { return owner->end().has_value(); }));
  EXPECT_EQ(owner->end()->remote_end->how, "NODE_FAIL");
  EXPECT_NE(owner->end()->remote_end->text.find("so it was"), std::string::npos);
  EXPECT_FALSE(clusters_->find("a"));
}

TEST_F(ClustersTest, AWaitingAttemptHasAForecastOfItsEnd) {
  begin();
  submit_attempt("unknown");
  rest_ = {0, 50, 60, 70};
  submit_attempt("known");
  ASSERT_TRUE(eventually([&] { return cluster_->read(&FakeCluster::submits) == 2; }));
  constexpr int64_t kStartUs = 1'800'000'000'000'000;
  for (const char* name : {"ty-unknown", "ty-known"}) {
    cluster_->see(name, Seen::kWaiting);
    const MutexLock lock(cluster_->mu);
    cluster_->jobs.at(name).sighting.start_estimate_us = kStartUs;
  }
  ASSERT_TRUE(in_time([&] {
    return sight("known").start_estimate_us > 0 && sight("unknown").start_estimate_us > 0;
  }));
  ClusterConfig config;
  config.name = "p";
  const std::vector<ClusterConfig> configs = {config};
  const ClusterQueue lines(configs, *clusters_);
  QueueView view;
  lines.add_to(view, Shares(), Quotas(), /*draining=*/false, clock_.wall_us(), 10, "");
  ASSERT_EQ(view.jobs.size(), 2u);
  const QueuedJob& known = view.jobs[0];
  EXPECT_EQ(known.start.likely_us, kStartUs);
  EXPECT_EQ(known.end.low_us, kStartUs + 50'000'000);
  EXPECT_EQ(known.end.likely_us, kStartUs + 60'000'000);
  EXPECT_EQ(known.end.high_us, kStartUs + 70'000'000);
  EXPECT_NE(known.why.message.find("it is then forecast to run for 60 s (50 s to 70 s)."),
            std::string::npos)
      << known.why.message;
  EXPECT_TRUE(view.jobs[1].start.known());
  EXPECT_FALSE(view.jobs[1].end.known());
  EXPECT_EQ(view.jobs[1].why.message.find("forecast"), std::string::npos);
}

TEST_F(ClustersTest, ARefusalEndsTheAttemptWithTheClustersMessage) {
  begin("r");
  const auto owner = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return owner->end().has_value(); }));
  EXPECT_EQ(owner->end()->start_error->reason, "CLUSTER_REFUSED");
  EXPECT_EQ(owner->end()->start_error->code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(owner->end()->start_error->message, "the cluster p refused the job: too many nodes");
  EXPECT_FALSE(clusters_->refusal("p")) << "others may ask for less";
}

TEST_F(ClustersTest, ATemporaryRefusalIsNotTheJobsFault) {
  begin("b");
  const auto owner = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return owner->end().has_value(); }));
  EXPECT_EQ(owner->end()->start_error->code, ErrorCode::kUnavailable);
  EXPECT_EQ(owner->end()->start_error->message,
            "the cluster p refused the job for now: too many jobs");
  EXPECT_FALSE(clusters_->refusal("p"));
}

// Fails if every waiting job is submitted with sbatch again and again to a partition whose name is
// misspelt.
TEST_F(ClustersTest, ARefusingClusterIsTriedWithOneJobAndOpensOnSuccess) {
  begin("pp");
  const auto first = submit_attempt("a"), second = submit_attempt("b");
  for (const auto& owner : {first, second}) {
    ASSERT_TRUE(eventually([&] { return owner->end().has_value(); }));
    EXPECT_EQ(owner->end()->start_error->code, ErrorCode::kFailedPrecondition);
    EXPECT_EQ(owner->end()->start_error->message,
              "the cluster p refused the job: no such partition");
  }
  EXPECT_EQ(cluster_->read(&FakeCluster::submits), 1u) << "of the second the answer is known";
  ASSERT_TRUE(clusters_->refusal("p"));
  EXPECT_EQ(clusters_->refusal("p")->text, "no such partition");
  EXPECT_EQ(clusters_->refusal("p")->left_us, 15'000'000);
  pass(15);
  EXPECT_EQ(clusters_->refusal("p")->left_us, 0) << "one is tried";
  const auto third = submit_attempt("c");
  ASSERT_TRUE(eventually([&] { return third->end().has_value(); }));
  EXPECT_EQ(cluster_->read(&FakeCluster::submits), 2u);
  EXPECT_EQ(clusters_->refusal("p")->left_us, 30'000'000) << "it doubles";
  pass(30);
  const auto fourth = submit_attempt("d");
  ASSERT_TRUE(eventually([&] { return found() == "100"; }));
  EXPECT_FALSE(clusters_->refusal("p"));
  EXPECT_FALSE(fourth->end());
}

TEST_F(ClustersTest, AClusterThatItsCheckFindsRefusingGetsNoSubmission) {
  begin("", "no such account");
  const auto owner = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return owner->end().has_value(); }));
  EXPECT_EQ(owner->end()->start_error->message, "the cluster p refused the job: no such account");
  EXPECT_EQ(cluster_->read(&FakeCluster::submits), 0u);
  pass(15);
  (void)submit_attempt("b");
  ASSERT_TRUE(eventually([&] { return found() == "100"; })) << "it was mended meanwhile";
  EXPECT_FALSE(clusters_->refusal("p"));
}

TEST_F(ClustersTest, ASubmissionWithoutAnAnswerIsFoundByItsName) {
  begin("l");
  const auto owner = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return cluster_->read(&FakeCluster::submits) == 1; }));
  ASSERT_TRUE(in_time([&] { return found() == "100"; }));
  EXPECT_EQ(cluster_->read(&FakeCluster::submits), 1u);
  EXPECT_FALSE(owner->end());
}

// The daemon resubmits only when the first submission can no longer arrive and two replies in a row
// did not list it.
TEST_F(ClustersTest, ASubmissionThatWasNotFoundIsRepeatedUnderItsName) {
  begin("n");
  const auto owner = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return cluster_->read(&FakeCluster::submits) == 1; }));
  for (int i = 1; i <= 5; ++i) {
    pass(10);
    ASSERT_TRUE(eventually([&] { return cluster_->read(&FakeCluster::finds) >= i; }));
  }
  EXPECT_EQ(cluster_->read(&FakeCluster::submits), 1u) << "50 s after it";
  EXPECT_NE(sight("a").reason.find("timed out"), std::string::npos) << sight("a").reason;
  ASSERT_TRUE(in_time([&] { return found() == "100"; }));
  EXPECT_EQ(cluster_->read(&FakeCluster::submits), 2u);
}

TEST_F(ClustersTest, AnAttemptIsSubmittedOnceUnderItsName) {
  begin();
  const auto owner = submit_attempt("a");
  ClusterAttempt attempt;
  attempt.uid = "a";
  attempt.attempt = 1;
  attempt.intent.name = "ty-a";
  EXPECT_THROW(clusters_->submit("p", attempt), InvariantError) << "its worker would come twice";
  attempt.attempt = 2;
  EXPECT_THROW(clusters_->submit("q", attempt), InvariantError) << "nobody would run it";
  attempt.intent.name.clear();
  EXPECT_THROW(clusters_->submit("p", attempt), InvariantError) << "nobody would find it";
  EXPECT_EQ(clusters_->sights("p").size(), 1u);
}

TEST_F(ClustersTest, WithoutAnswersFromTheClusterNothingIsDecided) {
  begin();
  const auto owner = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return found() == "100"; }));
  cluster_->set_silent(true);
  for (int i = 0; i < 100; ++i) {
    pass(60);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_FALSE(owner->end()) << "in more than an hour";
  ASSERT_TRUE(
      in_time([&] { return sight("a").reason.find("does not answer") != std::string::npos; }));
  cluster_->set_silent(false);
  ASSERT_TRUE(in_time([&] { return sight("a").reason == "Priority"; }));
}

// Fails if a stopping daemon waits for each command of a cluster that does not reply.
TEST_F(ClustersTest, AStopDoesNotWaitForAClusterAndLeavesAttemptsToTheNextDaemon) {
  begin("s");
  const auto asked = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return cluster_->read(&FakeCluster::submits) == 1; }));
  const auto waits = submit_attempt("b");
  clusters_->stop();
  EXPECT_EQ(cluster_->read(&FakeCluster::submits), 1u);
  EXPECT_FALSE(asked->end() || waits->end());
}

TEST_F(ClustersTest, AnAttemptOfAnEarlierDaemonIsAdoptedOrSubmitted) {
  begin();
  {
    const MutexLock lock(cluster_->mu);
    cluster_->jobs["ty-old"] = {"41", sighting_of({"41", "ty-old"}, Seen::kGranted)};
  }
  const auto by_handle = submit_attempt("old", "41", true);
  ASSERT_TRUE(in_time([&] { return sight("old").granted; }));
  EXPECT_EQ(cluster_->read(&FakeCluster::submits), 0u);
  // The store has the attempt, but the previous daemon died before it submitted it.
  const auto never = submit_attempt("never", "", true);
  ASSERT_TRUE(in_time([&] { return cluster_->read(&FakeCluster::submits) == 1; }));
  EXPECT_GE(cluster_->read(&FakeCluster::finds), 2);
}

TEST_F(ClustersTest, AWithdrawnAttemptEndsWhenTheClusterConfirmsIt) {
  begin();
  cluster_->obeys = false;
  const auto owner = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return found() == "100"; }));
  supervisor_->stop("a-1", "cancel", 1);
  ASSERT_TRUE(in_time([&] { return cluster_->read(&FakeCluster::withdrawn).size() >= 3; }))
      << "it is asked again as long as it is there";
  EXPECT_FALSE(owner->end());
  cluster_->set_obeys();
  ASSERT_TRUE(in_time([&] { return owner->end().has_value(); }));
  EXPECT_EQ(owner->end()->remote_end->how, "CANCELLED");
  EXPECT_TRUE(owner->end()->stop_asked);
}

TEST_F(ClustersTest, ASlurmJobThatOutlivesItsOutcomeIsWithdrawn) {
  begin();
  (void)submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return found() == "100"; }));
  cluster_->see("ty-a", Seen::kGranted);
  ASSERT_TRUE(in_time([&] { return sight("a").granted; }));
  clusters_->forget("p", "a", 1);
  EXPECT_FALSE(clusters_->find("a")) << "it is nobody's";
  EXPECT_TRUE(cluster_->read(&FakeCluster::withdrawn).empty());
  ASSERT_TRUE(in_time([&] { return !cluster_->read(&FakeCluster::withdrawn).empty(); }));
}

TEST_F(ClustersTest, AnAllocationWithoutAWorkerIsReleased) {
  begin();
  const auto owner = submit_attempt("a");
  ASSERT_TRUE(eventually([&] { return found() == "100"; }));
  cluster_->see("ty-a", Seen::kGranted);
  ASSERT_TRUE(in_time([&] { return sight("a").granted; }));
  ASSERT_TRUE(in_time([&] { return owner->end().has_value(); }, 200));
  EXPECT_FALSE(owner->end()->attached);
}

}  // namespace
}  // namespace trainyard::server
