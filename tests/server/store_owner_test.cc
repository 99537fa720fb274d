// Tests of owners, time limits, dependencies and drained devices in the store. Reopening the store
// exposes promises that are kept in memory only.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "server/store/dependencies.h"
#include "server/store/store_files.h"
#include "server/store/wait_for.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

class StoreOwner : public ::testing::Test {
 protected:
  void reopen() {
    store.reset();
    store = open_or_die(small_options(directory.path()), clock);
  }
  JobStore& jobs() { return store->jobs(); }

  static NewJob job_of(const std::string& id, const std::string& owner) {
    NewJob job = new_job(id);
    job.owner = owner;
    return job;
  }
  static NewJob job_after(const std::string& id, std::vector<Dependency> after) {
    NewJob job = new_job(id);
    job.after = std::move(after);
    return job;
  }
  std::vector<std::string> names_of(const JobQuery& query) {
    std::vector<std::string> names;
    const JobPage page = jobs().list(query).value();
    for (const Job& job : page.jobs) names.push_back(job.id);
    return names;
  }
  Job get(const std::string& id) { return jobs().find("default", id).value(); }
  /// Ends a waiting job as if it had run.
  Job finish(const std::string& id, JobState to) {
    Job job = get(id);
    job = jobs().start_attempt(job.uid, {"devices/cpu"}, "nonce", "DEVICE_ASSIGNED", "").value();
    AttemptUpdate started = update_of(job, 1);
    started.move = move_to(JobState::kRunning);
    EXPECT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(started)).ok());
    AttemptUpdate ended = update_of(job, 2);
    ended.move = move_to(to, to == JobState::kFailed ? "LOSS_NOT_FINITE" : "COMPLETED");
    return answer_of(jobs(), &JobStore::update_attempt, std::move(ended)).value();
  }

  /// Returns the number of unfinished jobs that wait for another job.
  int64_t count_waiting() {
    int64_t waiting = 0;
    const auto count = [&](const JobBrief& job) { waiting += job.waits_for > 0 ? 1 : 0; };
    EXPECT_TRUE(jobs().read_unfinished(count).ok());
    return waiting;
  }
  void wait_until_none_waits() {
    EXPECT_TRUE(eventually([&] { return count_waiting() == 0; })) << count_waiting() << " wait";
  }

  TemporaryDirectory directory;
  FakeClock clock;
  std::unique_ptr<Store> store = open_or_die(small_options(directory.path()), clock);
};

TEST_F(StoreOwner, AJobKeepsItsOwnerAndIsListedByIt) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(jobs().submit(job_of("ada-" + std::to_string(i), "ada")).ok());
    ASSERT_TRUE(jobs().submit(job_of("bob-" + std::to_string(i), "bob")).ok());
  }
  ASSERT_TRUE(jobs().request_cancel("default", "ada-1").ok());
  reopen();
  EXPECT_EQ(get("ada-0").owner, "ada");
  JobQuery query;
  query.projects = {"default"};
  query.owner = "ada";
  EXPECT_EQ(names_of(query), (std::vector<std::string>{"ada-2", "ada-1", "ada-0"}));
  query.states = {JobState::kCancelled};
  EXPECT_EQ(names_of(query), (std::vector<std::string>{"ada-1"}));
  query.states.clear();
  query.page_size = 2;
  const JobPage first = jobs().list(query).value();
  ASSERT_EQ(first.jobs.size(), 2u);
  query.page_token = first.next_page_token;
  EXPECT_EQ(names_of(query), (std::vector<std::string>{"ada-0"}));
  query.owner = "bob";
  const Result<JobPage> mixed = jobs().list(query);
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.error().reason, "PAGE_TOKEN_INVALID") << "a token of another owner's list";
  query = all_jobs();
  query.owner = "nobody";
  EXPECT_TRUE(names_of(query).empty());
}

TEST_F(StoreOwner, TheTimeLimitCountsWhatTheAttemptsTrainedAndNothingElse) {
  NewJob asked = new_job("limited");
  asked.spec.mutable_resources()->set_time_limit_seconds(10);
  clock.pass(int64_t{60'000'000});  // the job waits
  Job job = run_job(*store, asked);
  clock.pass(int64_t{6'000'000});
  AttemptUpdate lost = update_of(job);
  lost.move = move_to(JobState::kQueued);
  job = answer_of(jobs(), &JobStore::update_attempt, lost).value();
  EXPECT_EQ(job.state, JobState::kQueued);
  EXPECT_EQ(job.run_time_us, 6'000'000);
  clock.pass(int64_t{60'000'000});  // the job waits again
  reopen();
  job = jobs().start_attempt(job.uid, {"devices/cpu"}, "nonce", "DEVICE_ASSIGNED", "").value();
  AttemptUpdate started = update_of(job, 1);
  started.move = move_to(JobState::kRunning);
  job = answer_of(jobs(), &JobStore::update_attempt, started).value();
  clock.pass(int64_t{4'000'000});
  AttemptUpdate stopped = update_of(job, 2);
  stopped.events.push_back([] {
    v1::Event event;
    event.mutable_checkpoint()->set_step(70);
    return event;
  }());
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, stopped).ok());
  AttemptUpdate back = update_of(job);
  back.move = move_to(JobState::kQueued);
  job = answer_of(jobs(), &JobStore::update_attempt, back).value();
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_EQ(job.reason, "TIME_LIMIT_REACHED");
  EXPECT_NE(job.message.find("10 s, of at most 10 s"), std::string::npos) << job.message;
  EXPECT_NE(job.message.find("checkpoint of step 70"), std::string::npos) << job.message;
}

TEST_F(StoreOwner, AWorkerOutOfSightHasTrainedUpToItsNewestEvent) {
  NewJob asked = new_job("unseen");
  asked.spec.mutable_resources()->set_time_limit_seconds(10);
  const Job job = run_job(*store, asked);
  clock.pass(int64_t{3'000'000});
  AttemptUpdate heard = update_of(job, 2);
  heard.events.push_back(log_event("step"));
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, heard).ok());
  clock.pass(int64_t{3'600'000'000});  // no daemon ran during this hour
  AttemptUpdate gone = update_of(job);
  gone.move = move_to(JobState::kQueued);
  gone.move->unseen = true;
  const Job back = answer_of(jobs(), &JobStore::update_attempt, gone).value();
  EXPECT_EQ(back.state, JobState::kQueued) << back.message;
  EXPECT_EQ(back.run_time_us, 3'000'000);
}

TEST_F(StoreOwner, ACancelPrecedesATimeLimitWhichPrecedesAPause) {
  const auto end_late = [&](const std::string& id, bool cancels) {
    NewJob asked = new_job(id);
    asked.spec.mutable_resources()->set_time_limit_seconds(1);
    const Job job = run_job(*store, asked);
    EXPECT_TRUE(jobs().request_pause("default", id).ok());
    if (cancels) {
      EXPECT_TRUE(jobs().request_cancel("default", id).ok());
    }
    clock.pass(int64_t{2'000'000});
    AttemptUpdate back = update_of(job);
    back.move = move_to(JobState::kQueued);
    return answer_of(jobs(), &JobStore::update_attempt, back).value();
  };
  EXPECT_EQ(end_late("paused", false).reason, "TIME_LIMIT_REACHED");
  EXPECT_EQ(end_late("cancelled", true).reason, "CANCELLED");
}

TEST_F(StoreOwner, AJobWaitsForAnotherAndStartsAfterItsSuccess) {
  std::map<std::string, JobBrief> reported;
  std::mutex mu;
  store->observe([&](std::span<const JobChange> changes) {
    const std::lock_guard lock(mu);
    for (const JobChange& change : changes) {
      if (change.reschedules) reported[change.uid] = *change.reschedules;
    }
  });
  ASSERT_TRUE(jobs().submit(new_job("first")).ok());
  ASSERT_TRUE(jobs().submit(new_job("other")).ok());
  Job waiting = jobs().submit(job_after("then", {{"first"}, {"other", true}})).value();
  EXPECT_EQ(waiting.state, JobState::kQueued);
  EXPECT_EQ(waiting.reason, "WAITING_FOR_JOB");
  EXPECT_EQ(waiting.message, "Waits for the job first to succeed, and for 1 more.");
  EXPECT_EQ(waiting.waits_for, 2);
  finish("first", JobState::kSucceeded);
  waiting = get("then");
  EXPECT_EQ(waiting.message, "Waits for the job other to end.");
  finish("other", JobState::kFailed);
  waiting = get("then");
  EXPECT_EQ(waiting.waits_for, 0);
  EXPECT_EQ(waiting.reason, "WAITING_FOR_SCHEDULER");
  const std::lock_guard lock(mu);
  EXPECT_EQ(reported.at(waiting.uid).waits_for, 0) << "the scheduler hears of it";
}

TEST_F(StoreOwner, JobsThatWaitForAFailedJobFailTransitively) {
  constexpr int kLength = 2'000;  // a recursive implementation would overflow the stack
  ASSERT_TRUE(jobs().submit(new_job("link-0")).ok());
  for (int i = 1; i <= kLength; ++i) {
    ASSERT_TRUE(
        jobs()
            .submit(job_after("link-" + std::to_string(i), {{"link-" + std::to_string(i - 1)}}))
            .ok());
  }
  ASSERT_TRUE(
      jobs().submit(job_after("cleanup", {{"link-" + std::to_string(kLength), true}})).ok());
  ASSERT_TRUE(jobs().request_pause("default", "link-7").ok());
  reopen();
  finish("link-0", JobState::kFailed);
  wait_until_none_waits();
  const Job second = get("link-1");
  EXPECT_EQ(second.state, JobState::kCancelled);
  EXPECT_EQ(second.reason, "DEPENDENCY_FAILED");
  EXPECT_EQ(second.message,
            "It depends on the success of projects/default/jobs/link-0, which is FAILED "
            "(LOSS_NOT_FINITE).");
  EXPECT_EQ(get("link-7").state, JobState::kCancelled) << "a paused one too";
  const Job last = get("link-" + std::to_string(kLength));
  EXPECT_EQ(last.reason, "DEPENDENCY_FAILED");
  EXPECT_EQ(all_events(*store, last.uid).back().state().state(), v1::CANCELLED);
  EXPECT_EQ(get("cleanup").waits_for, 0) << "whatever it ends as";
  EXPECT_EQ(get("cleanup").state, JobState::kQueued);
}

TEST_F(StoreOwner, ThousandsOfWaitingJobsAreSettledInPiecesAlsoOverARestart) {
  constexpr int kWaiters = 3'000;
  std::mutex mu;
  size_t commit_max = 0;  // largest number of changes in a commit
  const auto observe = [&] {
    store->observe([&](std::span<const JobChange> changes) {
      const std::lock_guard lock(mu);
      commit_max = std::max(commit_max, changes.size());
    });
  };
  observe();
  ASSERT_TRUE(jobs().submit(new_job("hub")).ok());
  const auto name = [](const char* kind, int i) { return kind + std::to_string(i); };
  for (int i = 0; i < kWaiters; ++i) {  // every other waiter is woken; the rest end
    NewJob waiter = job_after(name("waiter-", i), {{"hub", i % 2 == 0}});
    jobs().submit(std::move(waiter), [](const Result<Job>& job) { EXPECT_TRUE(job.ok()); });
  }
  ASSERT_TRUE(jobs().submit(job_after("behind", {{name("waiter-", kWaiters - 1)}})).ok());
  {
    const std::lock_guard lock(mu);
    commit_max = 0;
  }
  const Job hub = finish("hub", JobState::kFailed);
  const Result<Job> removed = jobs().remove("default", "hub");
  if (removed.ok()) {
    EXPECT_EQ(count_waiting(), 0) << "a job is removed behind the last that waited for it";
  } else {
    EXPECT_EQ(removed.error().reason, "JOB_STATE_CONFLICT");
    EXPECT_NE(removed.error().message.find("still being updated"), std::string::npos);
  }
  reopen();
  observe();
  wait_until_none_waits();
  for (int i = 0; i < kWaiters; i += 499) {
    const Job waiter = get(name("waiter-", i));
    EXPECT_EQ(waiter.state, i % 2 == 0 ? JobState::kQueued : JobState::kCancelled) << i;
    EXPECT_EQ(waiter.reason, i % 2 == 0 ? "WAITING_FOR_SCHEDULER" : "DEPENDENCY_FAILED") << i;
  }
  EXPECT_EQ(get("behind").reason, "DEPENDENCY_FAILED");
  EXPECT_EQ(jobs().count()->queued, kWaiters / 2);
  const std::lock_guard lock(mu);
  EXPECT_GT(commit_max, 0u);
  EXPECT_LE(commit_max, static_cast<size_t>(kSettledMax) + 3) << "with three commands";
}

// A daemon died right after the commit that ends a job.
TEST_F(StoreOwner, DependenciesLeftByAKilledDaemonAreSettledAtTheOpening) {
  ASSERT_TRUE(jobs().submit(new_job("first")).ok());
  ASSERT_TRUE(jobs().submit(new_job("other")).ok());
  ASSERT_TRUE(jobs().submit(job_after("needs-it", {{"first"}})).ok());
  ASSERT_TRUE(jobs().submit(job_after("needs-both", {{"first", true}, {"other"}})).ok());
  ASSERT_TRUE(jobs().submit(job_after("any", {{"first", true}})).ok());
  store.reset();
  {
    const Result<OpenStore> left = open_store(small_options(directory.path()));
    ASSERT_TRUE(left.ok()) << left.error().message;
    left->db->execute(
        "UPDATE jobs SET state = 6, reason = 'GONE', end_time_us = 1"
        " WHERE id = 'first'");
  }
  reopen();
  EXPECT_TRUE(eventually([&] { return count_waiting() == 1; }));
  EXPECT_EQ(get("needs-it").reason, "DEPENDENCY_FAILED");
  EXPECT_EQ(get("any").reason, "WAITING_FOR_SCHEDULER");
  EXPECT_EQ(get("needs-both").message, "Waits for the job other to succeed.");
  EXPECT_TRUE(jobs().remove("default", "first").ok());
}

TEST_F(StoreOwner, ACancelledWaitingJobNeitherRunsNorBlocksOthers) {
  ASSERT_TRUE(jobs().submit(new_job("first")).ok());
  ASSERT_TRUE(jobs().submit(job_after("second", {{"first"}})).ok());
  ASSERT_TRUE(jobs().submit(job_after("third", {{"second", true}})).ok());
  ASSERT_TRUE(jobs().request_cancel("default", "second").ok());
  EXPECT_EQ(get("third").waits_for, 0);
  finish("first", JobState::kSucceeded);
  EXPECT_EQ(get("second").state, JobState::kCancelled);
  ASSERT_TRUE(jobs().remove("default", "second").ok());
  ASSERT_TRUE(jobs().remove("default", "first").ok());
}

TEST_F(StoreOwner, APausedWaitingJobNamesItsDependencyAfterAResume) {
  ASSERT_TRUE(jobs().submit(new_job("first")).ok());
  ASSERT_TRUE(jobs().submit(job_after("second", {{"first"}})).ok());
  ASSERT_TRUE(jobs().request_pause("default", "second").ok());
  Job job = jobs().resume("default", "second").value();
  EXPECT_EQ(job.reason, "WAITING_FOR_JOB");
  EXPECT_EQ(job.message, "Resumed on request. Waits for the job first to succeed.");
  ASSERT_TRUE(jobs().request_pause("default", "second").ok());
  finish("first", JobState::kSucceeded);
  EXPECT_EQ(get("second").state, JobState::kPaused) << "its pause stays";
  EXPECT_EQ(jobs().resume("default", "second").value().reason, "WAITING_FOR_SCHEDULER");
}

TEST_F(StoreOwner, OnlyAnExistingJobThatCanStillSucceedIsWaitedFor) {
  const Result<Job> unknown = jobs().submit(job_after("a-job", {{"nowhere"}}));
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(unknown.error().reason, "JOB_NOT_FOUND");
  EXPECT_EQ(unknown.error().message.find("spec.after[0].job: there is no job nowhere"), 0u);
  const Result<Job> itself = jobs().submit(job_after("a-job", {{"a-job"}}));
  ASSERT_FALSE(itself.ok());
  EXPECT_EQ(itself.error().reason, "JOB_NOT_FOUND") << "so there are no cycles";

  ASSERT_TRUE(jobs().submit(new_job("bad")).ok());
  finish("bad", JobState::kFailed);
  ASSERT_TRUE(jobs().submit(new_job("good")).ok());
  finish("good", JobState::kSucceeded);
  const Result<Job> failed = jobs().submit(job_after("b-job", {{"good"}, {"bad"}}));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(failed.error().reason, "DEPENDENCY_FAILED");
  EXPECT_NE(failed.error().message.find("spec.after[1].job: bad is FAILED (LOSS_NOT_FINITE)"),
            std::string::npos)
      << failed.error().message;
  const Job ready = jobs().submit(job_after("c-job", {{"good"}, {"bad", true}})).value();
  EXPECT_EQ(ready.waits_for, 0) << "all of it has ended as asked";
  EXPECT_EQ(ready.reason, "WAITING_FOR_SCHEDULER");
}

TEST_F(StoreOwner, AJobMayWaitForTheModelThatAnotherWillMake) {
  ASSERT_TRUE(jobs().submit(new_job("base")).ok());
  NewJob tuned = job_after("tuned", {{"base"}});
  tuned.initial_model_id = "base";
  ASSERT_TRUE(jobs().submit(tuned).ok());
  NewJob alone = new_job("alone");
  alone.initial_model_id = "base";
  const Result<Job> early = jobs().submit(alone);
  ASSERT_FALSE(early.ok());
  EXPECT_EQ(early.error().reason, "MODEL_NOT_FOUND");
  NewJob any = job_after("any-end", {{"base", true}});
  any.initial_model_id = "base";
  EXPECT_FALSE(jobs().submit(any).ok()) << "it may end without a model";
}

constexpr int64_t kHourUs = int64_t{3600} * 1'000'000;
constexpr int64_t kDayUs = 24 * kHourUs;

TEST_F(StoreOwner, TheUsageOfAnOwnerOutlivesTheJob) {
  ASSERT_TRUE(jobs().keep_uses(kDayUs).ok());
  const auto use = [&](const std::string& id, const std::string& owner, int64_t hours) {
    Job job = jobs().submit(job_of(id, owner)).value();
    job = jobs().start_attempt(job.uid, {"devices/gpu-0", "devices/gpu-1"}, "n", "R", "").value();
    AttemptUpdate started = update_of(job, 1);
    started.move = move_to(JobState::kRunning);
    EXPECT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(started)).ok());
    clock.pass(hours * kHourUs);
    AttemptUpdate ended = update_of(job, 2);
    ended.move = move_to(JobState::kFailed, "LOSS_NOT_FINITE");
    EXPECT_TRUE(answer_of(jobs(), &JobStore::update_attempt, ended).ok());
    EXPECT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(ended)).ok())
        << "sent again: counted once";
  };
  use("first", "ada", 2);
  const double first = use_after(0, 2, 2 * kHourUs, kDayUs);
  EXPECT_NEAR(first, 2 * 2 * 3600, 500);
  use("second", "ada", 24);
  use("third", "bob", 1);
  ASSERT_TRUE(jobs().remove("default", "first").ok());
  ASSERT_TRUE(jobs().remove("default", "second").ok());
  reopen();
  ASSERT_TRUE(jobs().keep_uses(kDayUs).ok());
  Uses uses = jobs().uses().value();
  ASSERT_EQ(uses.past.size(), 2u);
  EXPECT_EQ(uses.past[0].owner, "ada");
  EXPECT_NEAR(uses.past[0].used, first / 2 + use_after(0, 2, kDayUs, kDayUs), 1e-6);
  EXPECT_EQ(uses.past[0].as_of_us, clock.wall_us() - kHourUs);
  EXPECT_EQ(uses.past[1].owner, "bob");
  EXPECT_TRUE(uses.running.empty());

  const Job runs = run_job(*store, job_of("runs", "eve"));
  uses = jobs().uses().value();
  ASSERT_EQ(uses.running.size(), 1u);
  EXPECT_EQ(uses.running[0].owner, "eve");
  EXPECT_EQ(uses.running[0].devices, 1);
  EXPECT_EQ(uses.running[0].start_us, clock.wall_us());
  EXPECT_EQ(uses.past.size(), 2u) << "it is counted at its end";
}

TEST_F(StoreOwner, MissingUsageIsComputedFromAttempts) {
  clock.pass(kDayUs);
  (void)jobs().submit(job_of("long-ago", "old")).value();
  finish("long-ago", JobState::kFailed);
  clock.pass(20 * kDayUs);
  (void)jobs().submit(job_of("late", "ada")).value();
  Job late = get("late");
  late = jobs().start_attempt(late.uid, {"devices/cpu"}, "n", "R", "").value();
  clock.pass(kHourUs);
  AttemptUpdate ended = update_of(late);
  ended.move = move_to(JobState::kFailed, "LOSS_NOT_FINITE");
  ASSERT_TRUE(answer_of(jobs(), &JobStore::update_attempt, std::move(ended)).ok());
  EXPECT_TRUE(jobs().uses()->past.empty()) << "by default none are kept";

  ASSERT_TRUE(jobs().keep_uses(kDayUs).ok());
  Uses uses = jobs().uses().value();
  ASSERT_EQ(uses.past.size(), 1u) << "what has decayed is not looked at";
  EXPECT_EQ(uses.past[0].owner, "ada");
  const double used = use_after(0, 1, kHourUs, kDayUs);
  EXPECT_NEAR(uses.past[0].used, used, 1e-6);

  clock.pass(kDayUs);
  ASSERT_TRUE(jobs().keep_uses(kDayUs / 2).ok());
  EXPECT_NEAR(jobs().uses()->past.at(0).used, used / 2, 1e-6) << "until now by the old half-life";
  EXPECT_EQ(jobs().uses()->past.at(0).as_of_us, clock.wall_us());
  ASSERT_TRUE(jobs().keep_uses(0).ok());
  EXPECT_TRUE(jobs().uses()->past.empty());
}

TEST_F(StoreOwner, AJobThatWaitsForAnotherDoesNotStart) {
  ASSERT_TRUE(jobs().submit(new_job("first")).ok());
  const Job waiting = jobs().submit(job_after("then", {{"first"}})).value();
  const Result<Job> started = jobs().start_attempt(waiting.uid, {"devices/cpu"}, "n", "R", "m");
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::kInternal) << "whoever asks for it is at fault";
  EXPECT_EQ(get("then").state, JobState::kQueued);
}

TEST_F(StoreOwner, ADrainedDeviceStaysSoAfterReopening) {
  ASSERT_TRUE(store->drains().list().value().empty());
  DeviceDrain drain;
  drain.device = "GPU-1";
  drain.name = "devices/gpu-0";
  drain.model = "H";
  drain.reason = "a new fan";
  drain.owner = "ada";
  drain.vacate = true;
  clock.pass(int64_t{1'000'000});
  ASSERT_TRUE(store->drains().put(drain).ok());
  drain.reason = "two new fans";
  ASSERT_TRUE(store->drains().put(drain).ok());
  reopen();
  const std::vector<DeviceDrain> drains = store->drains().list().value();
  ASSERT_EQ(drains.size(), 1u) << "a second one replaces the first";
  EXPECT_EQ(drains[0].name, "devices/gpu-0");
  EXPECT_EQ(drains[0].model, "H");
  EXPECT_EQ(drains[0].reason, "two new fans");
  EXPECT_EQ(drains[0].owner, "ada");
  EXPECT_TRUE(drains[0].vacate);
  EXPECT_EQ(drains[0].time_us, clock.wall_us());
  ASSERT_TRUE(store->drains().remove("GPU-1").ok());
  ASSERT_TRUE(store->drains().remove("GPU-1").ok()) << "gone already";
  EXPECT_TRUE(store->drains().list().value().empty());
}

}  // namespace
}  // namespace trainyard::server
