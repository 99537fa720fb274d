// Tests of the store's promises about jobs, attempts and events, one promise per test. A test
// reopens the store where a promise might be kept in memory only.
#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "server/store/wait_for.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class StoreJob : public ::testing::Test {
 protected:
  void reopen() {
    store.reset();
    store = open_or_die(small_options(directory.path()), clock);
  }
  JobStore& jobs() { return store->jobs(); }

  TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);
};

TEST_F(StoreJob, ASubmittedJobSurvivesReopening) {
  NewJob asked = new_job("first");
  asked.spec.set_priority(7);
  asked.plan.set_parameter_count(123);
  const Job job = jobs().submit(asked).value();
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_EQ(job.newest_seq, 1);
  reopen();
  const Job again = jobs().find("default", "first").value();
  EXPECT_EQ(again.uid, job.uid);
  EXPECT_EQ(again.spec.SerializeAsString(), asked.spec.SerializeAsString());
  EXPECT_EQ(again.plan.parameter_count(), 123);
  EXPECT_EQ(again.priority, 7);
  EXPECT_EQ(again.create_time_us, clock.wall_us());
  const std::vector<v1::Event> events = all_events(*store, job.uid);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].state().state(), v1::QUEUED);
}

TEST_F(StoreJob, GeneratedIdsAreDifferentAndValid) {
  const Job a = jobs().submit(new_job()).value();
  const Job b = jobs().submit(new_job()).value();
  EXPECT_NE(a.id, b.id);
  EXPECT_LT(a.order, b.order);
  for (const char c : a.id) EXPECT_TRUE(std::islower(c) || std::isdigit(c) || c == '-') << a.id;
  EXPECT_GE(a.id.size(), 4u);
}

TEST_F(StoreJob, AnIdInUseIsRefused) {
  ASSERT_TRUE(jobs().submit(new_job("mine")).ok());
  const Result<Job> second = jobs().submit(new_job("mine"));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(second.error().reason, "JOB_EXISTS");
  EXPECT_EQ(second.error().message,
            "job_id: 'mine' is already the name of a job; choose another, such as mine-1, or leave "
            "it out.");
  ASSERT_TRUE(jobs().submit(new_job("mine-1")).ok());
  EXPECT_NE(jobs().submit(new_job("mine-1")).error().message.find("such as mine-2"),
            std::string::npos);
}

TEST_F(StoreJob, AnIdOfAStemHasTheNextFreeNumber) {
  NewJob asked = new_job();
  asked.id_stem = "long-1-r";
  EXPECT_EQ(jobs().submit(asked).value().id, "long-1-r1");
  EXPECT_EQ(jobs().submit(asked).value().id, "long-1-r2");
  asked.id_stem = std::string(70, 'x');
  EXPECT_EQ(jobs().submit(asked).value().id.size(), 60u) << "an ID has at most 63 characters";
}

TEST_F(StoreJob, SameRequestIdIsTheSameJobAlsoAfterReopening) {
  NewJob asked = new_job();
  asked.request_id = "9f2c6f0e-4c0e-4d66-9c0f-0f6f2b1b9a11";
  asked.request_digest = "aa";
  const Job first = jobs().submit(asked).value();
  EXPECT_EQ(jobs().submit(asked).value().uid, first.uid);
  reopen();
  EXPECT_EQ(jobs().submit(asked).value().uid, first.uid);
  EXPECT_EQ(jobs().list(all_jobs()).value().jobs.size(), 1u);

  asked.request_digest = "bb";
  const Result<Job> other = jobs().submit(asked);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().reason, "REQUEST_ID_REUSED");
  EXPECT_TRUE(other.error().metadata.empty()) << "the first may be another person's";
}

TEST_F(StoreJob, RequestIdIsForgottenAfterADay) {
  NewJob asked = new_job();
  asked.request_id = "9f2c6f0e-4c0e-4d66-9c0f-0f6f2b1b9a11";
  asked.request_digest = "aa";
  const Job first = jobs().submit(asked).value();
  clock.pass(int64_t{23} * 3600 * 1'000'000);
  EXPECT_EQ(jobs().submit(asked).value().uid, first.uid);
  clock.pass(int64_t{2} * 3600 * 1'000'000);
  EXPECT_NE(jobs().submit(asked).value().uid, first.uid);
}

TEST_F(StoreJob, ConcurrentSubmitsWithOneRequestIdMakeOneJob) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20;
  std::vector<std::vector<std::string>> uids(kThreads, std::vector<std::string>(kRounds));
  std::latch start(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        for (int r = 0; r < kRounds; ++r) {
          NewJob asked = new_job();
          asked.request_id = "request-" + std::to_string(r);
          asked.request_digest = "same";
          uids[t][r] = jobs().submit(asked).value().uid;
        }
      });
  }
  for (int r = 0; r < kRounds; ++r)
    for (int t = 1; t < kThreads; ++t) EXPECT_EQ(uids[t][r], uids[0][r]);
  EXPECT_EQ(jobs().count().value().queued, kRounds);
}

TEST_F(StoreJob, QuotaOfQueuedJobsFollowsTheirState) {
  store.reset();
  StoreOptions options = small_options(directory.path());
  options.queued_jobs_max = 2;
  store = open_or_die(options, clock);
  const Job a = jobs().submit(new_job("job-a")).value();
  ASSERT_TRUE(jobs().submit(new_job("job-b")).ok());
  const Result<Job> refused = jobs().submit(new_job("job-c"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(refused.error().reason, "QUEUED_JOBS_QUOTA_EXCEEDED");
  ASSERT_TRUE(jobs().start_attempt(a.uid, {"devices/cpu"}, "n", "R", "m").ok());
  ASSERT_TRUE(jobs().submit(new_job("job-c")).ok());
  ASSERT_FALSE(jobs().submit(new_job("job-d")).ok());
  ASSERT_TRUE(jobs().request_cancel("default", "job-b").ok());
  ASSERT_TRUE(jobs().submit(new_job("job-d")).ok());
  ASSERT_FALSE(jobs().submit(new_job("job-e")).ok());
}

TEST_F(StoreJob, AJobsDevicesAreKeptInOrderAcrossARestart) {
  const Job job = jobs().submit(new_job("several")).value();
  const std::vector<std::string> devices = {"devices/gpu-3", "devices/gpu-0", "devices/gpu-1"};
  EXPECT_EQ(jobs().start_attempt(job.uid, devices, "n", "R", "m").value().devices, devices);
  store.reset();
  store = open_or_die(small_options(directory.path()), clock);
  const std::vector<Job> alive = jobs().list_active().value();
  ASSERT_EQ(alive.size(), 1u);
  EXPECT_EQ(alive[0].devices, devices);
  const v1::Job shown = to_proto(alive[0]);
  EXPECT_EQ(shown.device(), "devices/gpu-3");
  EXPECT_EQ(shown.devices_size(), 3);
  EXPECT_EQ(shown.devices(2), "devices/gpu-1");
  AttemptUpdate lost = update_of(alive[0]);
  lost.move = move_to(JobState::kQueued);
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(lost)).ok());
  EXPECT_EQ(jobs().start_attempt(job.uid, {"devices/gpu-2"}, "n", "R", "m").value().devices.size(),
            1u);
  EXPECT_EQ(jobs().find_uid(job.uid).value().devices, std::vector<std::string>{"devices/gpu-2"});
}

TEST_F(StoreJob, LifeOfAJobIsOneSequenceOfEvents) {
  Job job = run_job(*store, new_job("life"));
  EXPECT_EQ(job.state, JobState::kRunning);
  EXPECT_EQ(job.attempt, 1);
  EXPECT_EQ(job.device(), "devices/cpu");

  AttemptUpdate metrics = update_of(job, 2);
  v1::MetricSeries* series = metrics.events.emplace_back().mutable_metrics()->add_series();
  series->set_key("train/loss");
  for (const int step : {10, 20}) {
    series->add_steps(step);
    series->add_values(1.0 / step);
  }
  job = answer_of(jobs(), &JobStore::update_attempt, metrics).value();
  EXPECT_EQ(job.progress.step(), 20);
  EXPECT_DOUBLE_EQ(job.progress.metrics().at("train/loss"), 0.05);

  AttemptUpdate saved = update_of(job, 3);
  saved.events.emplace_back().mutable_checkpoint()->set_step(20);
  job = answer_of(jobs(), &JobStore::update_attempt, saved).value();
  EXPECT_EQ(job.checkpoint_step, 20);

  AttemptUpdate end = update_of(job, 4);
  end.move = move_to(JobState::kSucceeded, "DONE");
  v1::Outcome outcome;
  outcome.set_steps_done(30);
  outcome.add_baselines()->set_metric("test/accuracy");
  outcome.add_warnings("no better");
  outcome.add_warnings(std::string(5000, 'x'));  // longer than the store keeps
  end.add_result(outcome);
  end.final_metrics = {{"test/accuracy", 0.98}};
  end.confusion_matrices.emplace_back().set_rows_of("test");
  end.model = NewModel{"d1", 400, 100, {}};
  job = answer_of(jobs(), &JobStore::update_attempt, end).value();
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.model, "life");
  EXPECT_GT(job.end_time_us, 0);

  reopen();
  ASSERT_EQ(jobs().find_uid(job.uid)->progress.confusion_matrices_size(), 1);
  EXPECT_EQ(jobs().find_uid(job.uid)->progress.confusion_matrices(0).rows_of(), "test");
  EXPECT_EQ(jobs().find_uid(job.uid)->progress.baselines(0).metric(), "test/accuracy");
  ASSERT_EQ(jobs().find_uid(job.uid)->progress.warnings_size(), 1);
  EXPECT_EQ(jobs().find_uid(job.uid)->progress.warnings(0), "no better");
  const std::vector<v1::Event> events = all_events(*store, job.uid);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].state().state(), v1::QUEUED);
  EXPECT_EQ(events[1].state().state(), v1::STARTING);
  EXPECT_EQ(events[1].state().device(), "devices/cpu");
  EXPECT_EQ(events[2].state().state(), v1::RUNNING);
  EXPECT_TRUE(events[3].has_metrics());
  EXPECT_TRUE(events[4].has_checkpoint());
  EXPECT_EQ(events[5].state().state(), v1::SUCCEEDED);
  EXPECT_EQ(events[0].attempt(), 0);
  EXPECT_EQ(events[5].attempt(), 1);
  const Model model = store->models().find("default", "life").value();
  EXPECT_EQ(model.digest, "d1");
  EXPECT_DOUBLE_EQ(model.metrics.metrics().at("test/accuracy"), 0.98);
  EXPECT_EQ(jobs().find_attempt(job.uid, 1).value().outcome, "DONE");
  EXPECT_TRUE(jobs().list_active().value().empty());
}

TEST_F(StoreJob, ARepeatedReportChangesNothing) {
  const Job job = run_job(*store);
  AttemptUpdate log = update_of(job, 2);
  log.events.push_back(log_event("once"));
  const int64_t seq = answer_of(jobs(), &JobStore::update_attempt, log).value().newest_seq;
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, log).value().newest_seq, seq);
  reopen();
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, log).value().newest_seq, seq);
  EXPECT_EQ(jobs().find_attempt(job.uid, 1).value().acknowledged, 2);

  AttemptUpdate end = update_of(job, 3);
  end.move = move_to(JobState::kFailed);
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, end).ok());
  // The reply to the last report was lost, and the report is sent again.
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, end).value().newest_seq, seq + 1);
}

TEST_F(StoreJob, ReportAfterAGapIsRefused) {
  const Job job = run_job(*store);
  AttemptUpdate log = update_of(job, 3);
  log.events.push_back(log_event("third"));
  const Result<Job> refused = answer_of(jobs(), &JobStore::update_attempt, log);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason, "REPORT_GAP");
  EXPECT_EQ(refused.error().metadata.at("acknowledged"), "1");
  EXPECT_EQ(all_events(*store, job.uid).size(), 3u);
}

TEST_F(StoreJob, OlderAttemptIsFenced) {
  const Job first = run_job(*store);
  AttemptUpdate lost = update_of(first);
  lost.move = move_to(JobState::kQueued, "WORKER_KILLED");
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, lost).ok());
  AttemptUpdate late = update_of(first, 2);
  late.events.push_back(log_event("from the grave"));
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, late).error().reason, "ATTEMPT_FENCED");

  const Job second = jobs().start_attempt(first.uid, {"devices/cpu"}, "other", "R", "m").value();
  EXPECT_EQ(second.attempt, 2);
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, late).error().reason, "ATTEMPT_FENCED");
  late.move = move_to(JobState::kSucceeded);
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, late).error().code, ErrorCode::kAborted);
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, update_of(first, 1)).error().reason,
            "ATTEMPT_FENCED")
      << "sent again, too";
  EXPECT_EQ(answer_of(jobs(), &JobStore::set_process, first.uid, 1, 42, 43).error().reason,
            "ATTEMPT_FENCED");
  ASSERT_TRUE(answer_of(jobs(), &JobStore::set_process, first.uid, 2, 42, 43).ok());
  EXPECT_EQ(jobs().find_attempt(first.uid, 2).value().pid, 42);
  EXPECT_EQ(jobs().find_uid(first.uid).value().state, JobState::kStarting);
}

// Fails if two remote workers can both enrol for one attempt.
TEST_F(StoreJob, ACredentialIsRecordedOnce) {
  const Job queued = jobs().submit(new_job()).value();
  const Job job = jobs().start_attempt(queued.uid, {"devices/cpu"}, "", "R", "m").value();
  ASSERT_TRUE(answer_of(jobs(), &JobStore::set_nonce, job.uid, 1, "a").ok());
  ASSERT_TRUE(answer_of(jobs(), &JobStore::set_nonce, job.uid, 1, "a").ok())
      << "the answer was lost";
  EXPECT_EQ(answer_of(jobs(), &JobStore::set_nonce, job.uid, 1, "b").error().reason,
            "ENROLMENT_USED");
  EXPECT_EQ(jobs().find_attempt(job.uid, 1).value().nonce_digest, "a");
  AttemptUpdate end = update_of(job);
  end.move = move_to(JobState::kQueued);
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, end).ok());
  EXPECT_EQ(answer_of(jobs(), &JobStore::set_nonce, job.uid, 1, "a").error().reason,
            "ATTEMPT_FENCED");
}

TEST_F(StoreJob, TerminalStateIsWrittenOnce) {
  const Job job = run_job(*store);
  AttemptUpdate end = update_of(job);
  end.move = move_to(JobState::kSucceeded);
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, end).ok());
  for (const JobState to : kJobStates) {
    AttemptUpdate more = update_of(job);
    more.move = move_to(to);
    EXPECT_FALSE(answer_of(jobs(), &JobStore::update_attempt, more).ok()) << name_of(to);
    EXPECT_FALSE(answer_of(jobs(), &JobStore::move, job.uid, move_to(to)).ok()) << name_of(to);
  }
  EXPECT_FALSE(jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").ok());
  EXPECT_EQ(jobs().request_cancel("default", job.id).value().state, JobState::kSucceeded);
  EXPECT_FALSE(jobs().find_uid(job.uid).value().cancel_requested);
}

TEST_F(StoreJob, ARefusedTransitionChangesNothing) {
  const Job job = jobs().submit(new_job()).value();
  EXPECT_EQ(
      answer_of(jobs(), &JobStore::move, job.uid, move_to(JobState::kSucceeded)).error().reason,
      "JOB_STATE_CONFLICT");
  const Job running = run_job(*store);
  AttemptUpdate bad = update_of(running, 2);
  bad.events.push_back(log_event("must not stay"));
  bad.move = move_to(JobState::kStarting);
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, bad).error().reason, "JOB_STATE_CONFLICT");
  EXPECT_EQ(all_events(*store, running.uid).size(), 3u);
  EXPECT_EQ(jobs().find_attempt(running.uid, 1).value().acknowledged, 1);
}

TEST_F(StoreJob, CancelOfAWaitingJobEndsItAtOnce) {
  const Job job = jobs().submit(new_job("wait")).value();
  EXPECT_EQ(jobs().request_cancel("default", "wait").value().state, JobState::kCancelled);
  EXPECT_EQ(jobs().request_cancel("default", "wait").value().newest_seq, 2);
  EXPECT_EQ(jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").error().code,
            ErrorCode::kAborted);
  EXPECT_EQ(jobs().request_cancel("default", "nobody").error().reason, "JOB_NOT_FOUND");
}

TEST_F(StoreJob, AChangedPriorityIsDurableAndWakesTheScheduler) {
  const Job job = jobs().submit(new_job("wait")).value();
  std::vector<bool> reschedules;
  std::mutex mu;
  store->observe([&](std::span<const JobChange> changes) {
    const std::lock_guard lock(mu);
    for (const JobChange& change : changes) reschedules.push_back(change.reschedules.has_value());
  });
  EXPECT_EQ(jobs().set_priority("default", "wait", -3).value().priority, -3);
  EXPECT_EQ(jobs().set_priority("default", "wait", -3).value().newest_seq, 2) << "no second event";
  EXPECT_EQ(all_events(*store, job.uid).back().log().text(), "priority 0 becomes -3, on request");
  reopen();
  {
    const std::lock_guard lock(mu);
    EXPECT_EQ(reschedules, std::vector<bool>{true});
  }
  EXPECT_EQ(jobs().find("default", "wait").value().priority, -3);
  EXPECT_EQ(jobs().set_priority("default", "nobody", 1).error().reason, "JOB_NOT_FOUND");
  ASSERT_TRUE(jobs().request_cancel("default", "wait").ok());
  EXPECT_EQ(jobs().set_priority("default", "wait", 1).error().reason, "JOB_STATE_CONFLICT");
}

TEST_F(StoreJob, CancelledJobNeverGoesBackToTheQueue) {
  const Job job = run_job(*store);
  EXPECT_TRUE(jobs().request_cancel("default", job.id).value().cancel_requested);
  AttemptUpdate lost = update_of(job);
  lost.move = move_to(JobState::kQueued, "WORKER_KILLED");
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, lost).value().state, JobState::kCancelled);
}

TEST_F(StoreJob, APausedJobWaitsUntilItIsResumed) {
  ASSERT_TRUE(jobs().submit(new_job("wait")).ok());
  const Job paused = jobs().request_pause("default", "wait").value();
  EXPECT_EQ(paused.state, JobState::kPaused);
  EXPECT_FALSE(paused.pause_requested);
  EXPECT_EQ(jobs().request_pause("default", "wait").value().newest_seq, paused.newest_seq);
  EXPECT_EQ(jobs().start_attempt(paused.uid, {"devices/cpu"}, "n", "R", "m").error().reason,
            "JOB_STATE_CONFLICT");
  reopen();
  const Job resumed = jobs().resume("default", "wait").value();
  EXPECT_EQ(resumed.state, JobState::kQueued);
  EXPECT_EQ(resumed.order, paused.order);
  EXPECT_EQ(jobs().resume("default", "wait").value().newest_seq, resumed.newest_seq);
  EXPECT_TRUE(jobs().start_attempt(paused.uid, {"devices/cpu"}, "n", "R", "m").ok());
  EXPECT_EQ(jobs().request_pause("default", "nobody").error().reason, "JOB_NOT_FOUND");
}

TEST_F(StoreJob, ARunningJobPausesWhereItWouldGoBackToTheQueue) {
  const Job job = run_job(*store, new_job("runs"));
  AttemptUpdate saved = update_of(job, 2);
  saved.events.emplace_back().mutable_checkpoint()->set_step(20);
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, saved).ok());
  EXPECT_TRUE(jobs().request_pause("default", "runs").value().pause_requested);
  reopen();
  EXPECT_TRUE(jobs().find_uid(job.uid).value().pause_requested);
  AttemptUpdate lost = update_of(job);
  lost.move = move_to(JobState::kQueued, "WORKER_STOPPED");
  lost.move->retry_time_us = 99;
  const Job paused = answer_of(jobs(), &JobStore::update_attempt, lost).value();
  EXPECT_EQ(paused.state, JobState::kPaused);
  EXPECT_EQ(paused.reason, "PAUSED");
  EXPECT_NE(paused.message.find("step 20"), std::string::npos) << paused.message;
  EXPECT_FALSE(paused.pause_requested);
  EXPECT_EQ(paused.retry_time_us, 0);
}

TEST_F(StoreJob, APauseIsRevokedOrSupersededByTheEnd) {
  const Job job = run_job(*store, new_job("runs"));
  ASSERT_TRUE(jobs().request_pause("default", "runs").ok());
  EXPECT_FALSE(jobs().resume("default", "runs").value().pause_requested);
  AttemptUpdate stopped = update_of(job);
  stopped.move = move_to(JobState::kQueued, "WORKER_STOPPED");
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, stopped).value().state, JobState::kQueued);

  const Job other = run_job(*store, new_job("ends"));
  ASSERT_TRUE(jobs().request_pause("default", "ends").ok());
  AttemptUpdate end = update_of(other);
  end.move = move_to(JobState::kSucceeded);
  const Job done = answer_of(jobs(), &JobStore::update_attempt, end).value();
  EXPECT_EQ(done.state, JobState::kSucceeded);
  EXPECT_FALSE(done.pause_requested);
  EXPECT_EQ(jobs().request_pause("default", "ends").error().reason, "JOB_STATE_CONFLICT");
  EXPECT_EQ(jobs().resume("default", "ends").error().reason, "JOB_STATE_CONFLICT");
}

TEST_F(StoreJob, ACancelHasPrecedenceOverAPause) {
  const Job job = run_job(*store, new_job("both"));
  ASSERT_TRUE(jobs().request_pause("default", "both").ok());
  ASSERT_TRUE(jobs().request_cancel("default", "both").ok());
  EXPECT_EQ(jobs().request_pause("default", "both").error().reason, "JOB_STATE_CONFLICT");
  AttemptUpdate stopped = update_of(job);
  stopped.move = move_to(JobState::kQueued);
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, stopped).value().state,
            JobState::kCancelled);
}

TEST_F(StoreJob, ARestartPausesJobsWithAPauseRequest) {
  const Job job = run_job(*store, new_job("asked"));
  ASSERT_TRUE(jobs().request_pause("default", "asked").ok());
  reopen();
  requeue_active(*store);
  EXPECT_EQ(jobs().find_uid(job.uid).value().state, JobState::kPaused);
}

TEST_F(StoreJob, AJobOfACheckpointBeginsAtItsStepAndSaysSo) {
  NewJob asked = new_job("fork");
  asked.uid = "0123456789abcdef0123456789abcdef";
  asked.origin.set_job("projects/default/jobs/parent");
  asked.origin.set_step(300);
  asked.origin.add_changes("recipe.epochs: 3 becomes 5");
  const Job job = jobs().submit(asked).value();
  EXPECT_EQ(job.uid, asked.uid);
  reopen();
  const v1::Job shown = to_proto(jobs().find("default", "fork").value());
  EXPECT_EQ(shown.checkpoint_step(), 300);
  EXPECT_EQ(shown.progress().step(), 300);
  EXPECT_EQ(shown.origin().changes(0), asked.origin.changes(0));
  EXPECT_FALSE(to_proto(jobs().submit(new_job("own")).value()).has_origin());
}

TEST_F(StoreJob, ARequestThatWasSeenIsFoundWithoutASubmit) {
  NewJob asked = new_job("first");
  asked.request_id = "9f2c6f0e-4c0e-4d66-9c0f-0f6f2b1b9a11";
  asked.request_digest = "aa";
  const RequestId request = {"default", asked.request_id, "aa"};
  EXPECT_FALSE(jobs().find_request(request).value().has_value());
  const Job first = jobs().submit(asked).value();
  EXPECT_EQ(jobs().find_request(request).value()->uid, first.uid);
  EXPECT_EQ(jobs().find_request({"default", asked.request_id, "bb"}).error().reason,
            "REQUEST_ID_REUSED");
}

TEST_F(StoreJob, LostWorkersAreCountedUntilTheNextCheckpoint) {
  Job job = run_job(*store);
  AttemptUpdate lost = update_of(job);
  lost.move = move_to(JobState::kQueued);
  lost.move->worker_lost = true;
  lost.move->retry_time_us = clock.wall_us() + 5;
  job = answer_of(jobs(), &JobStore::update_attempt, lost).value();
  EXPECT_EQ(job.workers_lost, 1);
  EXPECT_EQ(job.retry_time_us, clock.wall_us() + 5);
  job = jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").value();
  EXPECT_EQ(job.retry_time_us, 0);
  AttemptUpdate started = update_of(job, 1);
  started.move = move_to(JobState::kRunning);
  job = answer_of(jobs(), &JobStore::update_attempt, started).value();
  AttemptUpdate failed_save = update_of(job, 2);
  failed_save.events.emplace_back().mutable_checkpoint()->set_step(5);
  failed_save.events.back().mutable_checkpoint()->set_error("disk full");
  job = answer_of(jobs(), &JobStore::update_attempt, failed_save).value();
  EXPECT_EQ(job.workers_lost, 1);
  EXPECT_EQ(job.checkpoint_step, 0);
  AttemptUpdate saved = update_of(job, 3);
  saved.events.emplace_back().mutable_checkpoint()->set_step(5);
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, saved).value().workers_lost, 0);
  lost.attempt = job.attempt;
  ASSERT_EQ(answer_of(jobs(), &JobStore::update_attempt, lost).value().workers_lost, 1);
  job = jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").value();
  AttemptUpdate again = update_of(job, 1);
  again.move = move_to(JobState::kRunning);
  again.events.emplace_back().mutable_checkpoint()->set_step(5);
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, again).value().workers_lost, 1)
      << "no further than before";
}

TEST_F(StoreJob, EventTimesNeverGoBackWhenTheClockDoes) {
  const Job job = run_job(*store);
  clock.set_wall(clock.wall_us() - int64_t{3600} * 1'000'000);
  AttemptUpdate log = update_of(job, 2);
  log.events.push_back(log_event("an hour ago?"));
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, log).ok());
  AttemptUpdate end = update_of(job, 3);
  end.move = move_to(JobState::kFailed);
  const Job ended = answer_of(jobs(), &JobStore::update_attempt, end).value();
  EXPECT_GE(ended.end_time_us, ended.start_time_us);
  int64_t last = 0;
  for (const v1::Event& e : all_events(*store, job.uid)) {
    const int64_t us = e.time().seconds() * 1'000'000 + e.time().nanos() / 1000;
    EXPECT_GE(us, last);
    last = us;
  }
}

TEST_F(StoreJob, NonFiniteMetricIsNotShownAsZero) {
  const Job job = run_job(*store);
  AttemptUpdate update = update_of(job, 2);
  v1::MetricSeries* series = update.events.emplace_back().mutable_metrics()->add_series();
  series->set_key("train/loss");
  series->add_steps(1);
  series->add_values(0);
  v1::NonFinite* mark = series->add_non_finite();
  mark->set_index(0);
  mark->set_kind(v1::NonFinite::NOT_A_NUMBER);
  EXPECT_TRUE(std::isnan(answer_of(jobs(), &JobStore::update_attempt, update)
                             .value()
                             .progress.metrics()
                             .at("train/loss")));
}

TEST_F(StoreJob, NewestMetricValuesAreBounded) {
  const Job job = run_job(*store);
  AttemptUpdate update = update_of(job, 2);
  v1::MetricBatch* batch = update.events.emplace_back().mutable_metrics();
  for (size_t i = 0; i < kMetricKeysMax + 100; ++i) {
    v1::MetricSeries* series = batch->add_series();
    series->set_key("key_" + std::to_string(i));
    series->add_steps(1);
    series->add_values(1);
  }
  EXPECT_EQ(answer_of(jobs(), &JobStore::update_attempt, update).value().progress.metrics().size(),
            kMetricKeysMax);
  EXPECT_EQ(all_events(*store, job.uid).back().metrics().series_size(),
            static_cast<int>(kMetricKeysMax) + 100);
}

TEST_F(StoreJob, ListPagesNewestFirstWithoutRepeatOrLoss) {
  std::vector<std::string> uids;
  for (int i = 0; i < 7; ++i) uids.push_back(jobs().submit(new_job()).value().uid);
  JobQuery query;
  query.projects = {"default"};
  query.page_size = 3;
  std::vector<std::string> seen;
  for (int page = 0; page < 3; ++page) {
    const JobPage got = jobs().list(query).value();
    for (const Job& j : got.jobs) seen.push_back(j.uid);
    query.page_token = got.next_page_token;
    EXPECT_EQ(query.page_token.empty(), page == 2);
  }
  std::reverse(uids.begin(), uids.end());
  EXPECT_EQ(seen, uids);
  ASSERT_TRUE(jobs().request_cancel("default", jobs().find_uid(uids[0]).value().id).ok());
  query = all_jobs();
  query.states = {JobState::kCancelled};
  EXPECT_EQ(jobs().list(query).value().jobs.size(), 1u);
  query.projects = {"other"};
  EXPECT_TRUE(jobs().list(query).value().jobs.empty());
}

// Jobs are looked up per state, and the merged list must be in one order.
TEST_F(StoreJob, ListOfSeveralStatesIsInOneOrder) {
  std::vector<std::string> waiting_or_over;  // newest first
  for (int i = 0; i < 12; ++i) {
    const Job job = i % 3 == 0 ? run_job(*store) : jobs().submit(new_job()).value();
    if (i % 3 == 1) {
      ASSERT_TRUE(jobs().request_cancel("default", job.id).ok());
    }
    if (i % 3 != 0) waiting_or_over.insert(waiting_or_over.begin(), job.uid);
  }
  ASSERT_TRUE(store->people().create_project("other").ok());
  NewJob others = new_job("others");
  others.project = "other";
  ASSERT_TRUE(jobs().submit(others).ok());
  JobQuery query;
  query.projects = {"default"};
  query.states = {JobState::kCancelled, JobState::kQueued, JobState::kQueued};
  query.page_size = 3;
  std::vector<std::string> seen;
  do {
    const JobPage page = jobs().list(query).value();
    EXPECT_LE(page.jobs.size(), 3u);
    for (const Job& j : page.jobs) seen.push_back(j.uid);
    query.page_token = page.next_page_token;
  } while (!query.page_token.empty());
  EXPECT_EQ(seen, waiting_or_over);
  query.states = {JobState::kFailed};
  EXPECT_TRUE(jobs().list(query).value().jobs.empty());
  query.projects = {"default", "other"};
  query.states = {JobState::kQueued};
  query.page_size = 2;
  const JobPage both = jobs().list(query).value();
  ASSERT_EQ(both.jobs.size(), 2u);
  EXPECT_EQ(both.jobs[0].name(), "projects/other/jobs/others") << "the newest";
  EXPECT_EQ(both.jobs[1].project, "default");
  query.page_token = both.next_page_token;
  EXPECT_EQ(jobs().list(query).value().jobs.size(), 2u);
  query.projects = {"other"};
  EXPECT_EQ(jobs().list(query).error().reason, "PAGE_TOKEN_INVALID") << "of other projects";
  const JobCounts counts = jobs().count().value();
  EXPECT_EQ(counts.queued, 5) << "of all projects";
  EXPECT_EQ(counts.starting, 0);
  EXPECT_EQ(counts.running, 4);
  const JobCounts ours = jobs().count({"default", "none"}).value();
  EXPECT_EQ(ours.queued, 4);
  EXPECT_EQ(ours.running, 4);
  EXPECT_EQ(jobs().count({"other"}).value().queued, 1);
  EXPECT_EQ(jobs().count(std::vector<std::string>()).value().queued, 0);
  const std::vector<Job> active = jobs().list_active().value();
  ASSERT_EQ(active.size(), 4u);
  for (size_t i = 1; i < active.size(); ++i) EXPECT_LT(active[i - 1].order, active[i].order);
}

// The scheduler's index is filled by a read and then updated by notifications, which must agree.
TEST_F(StoreJob, JobSummariesMatchTheJobs) {
  std::map<std::string, JobBrief> reported;
  std::mutex mu;
  store->observe([&](std::span<const JobChange> changes) {
    const std::lock_guard lock(mu);
    for (const JobChange& change : changes) {
      if (change.reschedules) reported[change.uid] = *change.reschedules;
    }
  });
  NewJob asked = new_job("wide");
  asked.owner = "ada";
  asked.spec.set_priority(4);
  asked.spec.mutable_resources()->set_device(v1::Resources::GPU);
  asked.spec.mutable_resources()->set_gpus(2);
  Job lost = run_job(*store, asked);
  AttemptUpdate update = update_of(lost);
  update.move = move_to(JobState::kQueued);
  update.move->worker_lost = true;
  update.move->retry_time_us = 12345;
  lost = answer_of(jobs(), &JobStore::update_attempt, update).value();
  const Job running = run_job(*store);
  const Job paused = jobs().submit(new_job("paused")).value();
  ASSERT_TRUE(jobs().request_pause("default", "paused").ok());
  ASSERT_TRUE(jobs().submit(new_job("over")).ok());
  ASSERT_TRUE(jobs().request_cancel("default", "over").ok());
  std::map<std::string, JobBrief> read;
  ASSERT_TRUE(jobs().read_unfinished([&](JobBrief brief) { read[brief.uid] = brief; }).ok());
  ASSERT_EQ(read.size(), 3u);
  const std::lock_guard lock(mu);
  EXPECT_EQ(reported.size(), 4u);
  for (const auto& [uid, brief] : read) {
    const JobBrief& other = reported.at(uid);
    EXPECT_EQ(brief.uid, other.uid);
    EXPECT_EQ(brief.order, other.order);
    EXPECT_EQ(brief.state, other.state);
    EXPECT_EQ(brief.priority, other.priority);
    EXPECT_EQ(brief.cancel_requested, other.cancel_requested);
    EXPECT_EQ(brief.resources.SerializeAsString(), other.resources.SerializeAsString());
    EXPECT_EQ(brief.devices, other.devices);
    EXPECT_EQ(brief.workers_lost, other.workers_lost);
    EXPECT_EQ(brief.retry_time_us, other.retry_time_us);
    EXPECT_EQ(brief.owner, other.owner);
    EXPECT_EQ(brief.waits_for, other.waits_for);
    EXPECT_EQ(brief.run_time_us, other.run_time_us);
    EXPECT_EQ(brief.running_since_us, other.running_since_us);
  }
  EXPECT_EQ(read.at(lost.uid).owner, "ada");
  EXPECT_EQ(read.at(lost.uid).running_since_us, 0);
  EXPECT_GT(read.at(running.uid).running_since_us, 0);
  EXPECT_EQ(read.at(lost.uid).retry_time_us, 12345);
  EXPECT_EQ(read.at(lost.uid).workers_lost, 1);
  EXPECT_EQ(read.at(lost.uid).priority, 4);
  EXPECT_EQ(read.at(lost.uid).resources.gpus(), 2);
  EXPECT_EQ(read.at(lost.uid).devices, std::vector<std::string>{"devices/cpu"});
  EXPECT_EQ(read.at(running.uid).state, JobState::kRunning);
  EXPECT_EQ(read.at(paused.uid).state, JobState::kPaused);
}

TEST_F(StoreJob, ListByLabelsPagesOverAllMatchingJobs) {
  std::vector<std::string> wanted;
  for (int i = 0; i < 12; ++i) {
    NewJob asked = new_job("job-" + std::to_string(i));
    (*asked.spec.mutable_labels())["team"] = i % 3 == 0 ? "vision" : "speech";
    if (i % 2 == 0) (*asked.spec.mutable_labels())["vision"] = "team";
    const Job job = jobs().submit(asked).value();
    if (i % 3 != 0) continue;
    wanted.insert(wanted.begin(), job.id);
    if (i % 2 == 0) {
      ASSERT_TRUE(jobs().request_cancel("default", job.id).ok());
    }
  }
  const auto read = [&](JobQuery query) {
    std::vector<std::string> seen;
    do {
      const JobPage page = jobs().list(query).value();
      EXPECT_LE(std::ssize(page.jobs), query.page_size);
      for (const Job& j : page.jobs) seen.push_back(j.id);
      query.page_token = page.next_page_token;
    } while (!query.page_token.empty());
    return seen;
  };
  JobQuery query;
  query.projects = {"default"};
  query.page_size = 3;
  query.labels = {{"team", "vision"}};
  EXPECT_EQ(read(query), wanted);
  query.labels["vision"] = "team";
  EXPECT_EQ(read(query), (std::vector<std::string>{"job-6", "job-0"}));
  query.states = {JobState::kQueued};
  EXPECT_EQ(read(query), std::vector<std::string>());
  query = all_jobs();
  query.labels = {{"team", "visio"}};
  EXPECT_EQ(read(query), std::vector<std::string>());
  query.labels = {{"team", "vision"}};
  query.page_size = 1;
  query.page_token = jobs().list(query).value().next_page_token;
  query.labels["vision"] = "team";
  EXPECT_EQ(jobs().list(query).error().reason, "PAGE_TOKEN_INVALID");
}

TEST_F(StoreJob, APageTokenIsRefusedIfChangedOrUsedWithAnotherRequest) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(jobs().submit(new_job()).ok());
  JobQuery query;
  query.projects = {"default"};
  query.page_size = 1;
  const std::string token = jobs().list(query).value().next_page_token;
  query.page_token = token;
  EXPECT_TRUE(jobs().list(query).ok());
  query.states = {JobState::kQueued};
  EXPECT_EQ(jobs().list(query).error().reason, "PAGE_TOKEN_INVALID");
  query.states.clear();
  for (size_t i = 0; i < token.size(); ++i) {
    query.page_token = token;
    query.page_token[i] = token[i] == '0' ? '1' : '0';
    EXPECT_EQ(jobs().list(query).error().reason, "PAGE_TOKEN_INVALID") << i;
  }
  query.page_token = "x";
  EXPECT_EQ(jobs().list(query).error().reason, "PAGE_TOKEN_INVALID");
  query.page_token = "";
  query.page_size = -1;
  EXPECT_EQ(jobs().list(query).error().reason, "PAGE_SIZE_NEGATIVE");
  query.page_size = 1'000'000;
  EXPECT_TRUE(jobs().list(query).ok());
  query.page_size = 1;
  query.page_token = token;
  reopen();  // the store keeps the key of page tokens
  EXPECT_TRUE(jobs().list(query).ok());
}

TEST_F(StoreJob, RemoveDeletesEventsAndKeepsTheModel) {
  Job job = run_job(*store, new_job("done"));
  EXPECT_EQ(jobs().remove("default", "done").error().reason, "JOB_STATE_CONFLICT");
  AttemptUpdate end = update_of(job);
  end.move = move_to(JobState::kSucceeded);
  end.model = NewModel{"d1", 400, 100, {}};
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, end).ok());
  EXPECT_EQ(jobs().find("default", "done").value().model, "done");
  EXPECT_EQ(jobs().remove("default", "done").value().uid, job.uid);
  EXPECT_EQ(jobs().find("default", "done").error().reason, "JOB_NOT_FOUND");
  EXPECT_EQ(read_events(jobs(), job.uid, 0, 10).error().reason, "JOB_NOT_FOUND");
  EXPECT_EQ(jobs().remove("default", "done").error().reason, "JOB_NOT_FOUND");
  EXPECT_TRUE(store->models().find("default", "done").ok());
  const Error taken = jobs().submit(new_job("done")).error();
  EXPECT_EQ(taken.reason, "JOB_EXISTS");
  EXPECT_NE(taken.message.find("'done' is already the name of a model"), std::string::npos);
  EXPECT_NE(taken.message.find("'trainyard model delete done' frees it"), std::string::npos);
  ASSERT_TRUE(store->models().remove("default", "done").ok());
  EXPECT_TRUE(jobs().submit(new_job("done")).ok());
}

TEST_F(StoreJob, AJobNamesItsModelUntilThatIsDeleted) {
  Job job = run_job(*store, new_job("done"));
  AttemptUpdate end = update_of(job);
  end.move = move_to(JobState::kSucceeded);
  end.model = NewModel{"d1", 400, 100, {}};
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, end).ok());
  EXPECT_EQ(jobs().find("default", "done").value().model, "done");
  ASSERT_TRUE(store->models().remove("default", "done").ok());
  EXPECT_EQ(jobs().find("default", "done").value().model, "");
}

TEST_F(StoreJob, OnlyAnEndedJobDropsItsCheckpoints) {
  Job job = run_job(*store, new_job("done"));
  AttemptUpdate update = update_of(job);
  update.events.emplace_back().mutable_checkpoint()->set_step(5);
  job = answer_of(jobs(), &JobStore::update_attempt, update).value();
  ASSERT_EQ(job.checkpoint_step, 5);
  EXPECT_EQ(jobs().drop_checkpoints(job.uid).error().reason, "JOB_STATE_CONFLICT");
  EXPECT_EQ(jobs().find_uid(job.uid).value().checkpoint_step, 5);
  AttemptUpdate end = update_of(job);
  end.move = move_to(JobState::kFailed);
  job = answer_of(jobs(), &JobStore::update_attempt, end).value();
  EXPECT_EQ(jobs().drop_checkpoints(job.uid).value().checkpoint_step, 0);
  EXPECT_EQ(jobs().find_uid(job.uid).value().checkpoint_step, 0);
  EXPECT_EQ(jobs().find_uid(job.uid).value().newest_seq, job.newest_seq);
  EXPECT_EQ(jobs().drop_checkpoints("nobody").error().reason, "JOB_NOT_FOUND");
}

TEST_F(StoreJob, EventsBeyondTheNewestAreRefused) {
  const Job job = jobs().submit(new_job()).value();
  EXPECT_TRUE(read_events(jobs(), job.uid, 1, 10).value().events.empty());
  const Result<EventBatch> ahead = read_events(jobs(), job.uid, 2, 10);
  ASSERT_FALSE(ahead.ok());
  EXPECT_EQ(ahead.error().code, ErrorCode::kOutOfRange);
  EXPECT_EQ(ahead.error().metadata.at("newest_seq"), "1");
  EXPECT_EQ(read_events(jobs(), job.uid, -1, 10).error().reason, "SEQUENCE_INVALID");
}

TEST_F(StoreJob, EventSequenceHasNoGapUnderConcurrency) {
  constexpr int kJobs = 6;
  constexpr int kReports = 60;
  std::vector<Job> running;
  for (int j = 0; j < kJobs; ++j) running.push_back(run_job(*store));
  std::atomic<int> answered = 0;
  {
    std::vector<std::jthread> threads;
    for (const Job& job : running)
      threads.emplace_back([&, job] {
        for (int r = 0; r < kReports; ++r) {  // no wait, but results are in order
          AttemptUpdate update = update_of(job, r + 2);
          update.events.push_back(log_event(std::to_string(r)));
          jobs().update_attempt(std::move(update), [&](Result<Job> result) {
            EXPECT_TRUE(result.ok());
            ++answered;
          });
        }
      });
    for (int r = 0; r < 50; ++r)  // concurrent readers see a prefix without a gap
      for (const Job& job : running) {
        int64_t expected = 0;
        const EventBatch batch = read_events(jobs(), job.uid, 0, 1000).value();
        for (const v1::Event& e : batch.events) ASSERT_EQ(e.seq(), ++expected);
      }
  }
  store.reset();  // the destructor completes all waiting changes
  EXPECT_EQ(answered, kJobs * kReports);
  store = open_or_die(small_options(directory.path()), clock);
  for (const Job& job : running) {
    const std::vector<v1::Event> events = all_events(*store, job.uid);
    ASSERT_EQ(events.size(), 3u + kReports);
    for (int r = 0; r < kReports; ++r) EXPECT_EQ(events[3 + r].log().text(), std::to_string(r));
  }
}

TEST_F(StoreJob, UpdateFromReportsOfAWorker) {
  Job job = jobs().submit(new_job()).value();
  job = jobs().start_attempt(job.uid, {"devices/cpu"}, "n", "R", "m").value();
  v1::WorkerReport report;
  report.set_number(1);
  report.mutable_started()->mutable_plan()->set_steps_total(300);
  report.mutable_started()->set_resumed_from_step(120);
  job =
      answer_of(jobs(), &JobStore::update_attempt, update_from_report(job.uid, 1, report)).value();
  EXPECT_EQ(job.state, JobState::kRunning);
  EXPECT_EQ(job.progress.steps_total(), 300);
  EXPECT_EQ(job.progress.step(), 120);
  EXPECT_EQ(all_events(*store, job.uid).back().state().resumed_from_step(), 120);
  report.Clear();  // heartbeats have no number
  report.mutable_heartbeat()->set_step(130);
  report.mutable_heartbeat()->set_samples_per_second(1000);
  job =
      answer_of(jobs(), &JobStore::update_attempt, update_from_report(job.uid, 1, report)).value();
  EXPECT_EQ(job.progress.step(), 130);
  EXPECT_EQ(job.newest_seq, 3);
}

// The second attempt starts from the checkpoint, so its report lacks the initial weights of the
// first.
TEST_F(StoreJob, InitialWeightsOfTheFirstAttemptAreKept) {
  Job job = run_job(*store);
  AttemptUpdate first = update_of(job, 2);
  first.plan.emplace().mutable_initial_weights()->set_source("digits-1");
  job = answer_of(jobs(), &JobStore::update_attempt, first).value();
  EXPECT_EQ(job.plan.initial_weights().source(), "digits-1");
  AttemptUpdate second = update_of(job, 3);
  second.plan.emplace().set_steps_total(7);
  job = answer_of(jobs(), &JobStore::update_attempt, second).value();
  EXPECT_EQ(job.plan.steps_total(), 7);
  EXPECT_EQ(job.plan.initial_weights().source(), "digits-1");
}

}  // namespace
}  // namespace trainyard::server
