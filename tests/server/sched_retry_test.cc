// F07 and F31: a job whose worker was lost is retried after a growing pause. A job without progress
// ends as CRASH_LOOP; one with progress continues, up to a limit.
#include <gtest/gtest.h>

#include "server/scheduler/retry.h"

namespace trainyard::server {
namespace {

Job running_job() {
  Job job;
  job.uid = "0123";
  job.state = JobState::kRunning;
  job.attempt = 1;
  return job;
}

TEST(SchedRetry, BackoffGrowsAndIsBounded) {
  Job job = running_job();
  int64_t last = 0;
  for (; job.workers_lost < kWorkersLostMax; ++job.workers_lost, ++job.attempt) {
    const Move move = after_worker_lost(job, "WORKER_KILLED", "Killed by signal 9.", 1000);
    EXPECT_EQ(move.to, JobState::kQueued);
    EXPECT_EQ(move.reason, "WORKER_KILLED");
    EXPECT_TRUE(move.worker_lost);
    const int64_t pause = move.retry_time_us - 1000;
    EXPECT_GT(pause, last);
    EXPECT_LE(pause, kRetryPauseMaxUs);
    EXPECT_TRUE(can_move(job.state, move.to));
    last = pause;
  }
  const Move end = after_worker_lost(job, "WORKER_KILLED", "Killed by signal 9.", 1000);
  EXPECT_EQ(end.to, JobState::kFailed);
  EXPECT_EQ(end.reason, "CRASH_LOOP");
  EXPECT_NE(end.message.find("signal 9"), std::string::npos);
}

TEST(SchedRetry, AFailingKernelIsRetriedLessOften) {
  Job job = running_job();
  job.workers_lost = kKernelFaultsMax - 1;
  EXPECT_EQ(after_worker_lost(job, "R", "m", 0, kKernelFaultsMax).to, JobState::kQueued);
  ++job.workers_lost;
  EXPECT_EQ(after_worker_lost(job, "R", "m", 0, kKernelFaultsMax).reason, "CRASH_LOOP");
  EXPECT_EQ(after_worker_lost(job, "R", "m", 0).to, JobState::kQueued);
}

TEST(SchedRetry, ThreeStallsEndTheJobAndDoNotCountAsAttempts) {
  Job job = running_job();
  for (; job.workers_lost < kStallsMax; ++job.workers_lost) {
    const Move move = after_stall(job, "It stood still.", 0);
    EXPECT_EQ(move.to, JobState::kQueued);
    EXPECT_EQ(move.reason, "WORKER_STALLED");
    EXPECT_TRUE(move.worker_lost && move.uncounted);
  }
  const Move end = after_stall(job, "It stood still.", 0);
  EXPECT_EQ(end.to, JobState::kFailed);
  EXPECT_EQ(end.reason, "WORKER_STALLED");
  EXPECT_NE(end.message.find("lost 3 times without a new checkpoint in between; the last time: It "
                             "stood still."),
            std::string::npos)
      << end.message;
  job.cancel_requested = true;
  EXPECT_EQ(after_stall(job, "It stood still.", 0).reason, "CANCELLED");
}

TEST(SchedRetry, ProgressDoesNotAllowEndlessRetries) {
  Job job = running_job();
  job.attempt = kAttemptsMax;
  EXPECT_EQ(after_worker_lost(job, "R", "m", 0).reason, "CRASH_LOOP");
}

TEST(SchedRetry, AttemptsEndedByHostProblemsDoNotCount) {
  Job job = running_job();
  job.attempt = 3 * kAttemptsMax;
  job.attempts_uncounted = job.attempt - 1;
  EXPECT_EQ(after_worker_lost(job, "R", "m", 0).to, JobState::kQueued);
  EXPECT_EQ(pause_after_host_trouble(1), 1'000'000);
  EXPECT_EQ(pause_after_host_trouble(3), 4'000'000);
  EXPECT_EQ(pause_after_host_trouble(1000), kRetryLongestUs);
}

TEST(SchedRetry, CancelledJobEnds) {
  Job job = running_job();
  job.cancel_requested = true;
  EXPECT_EQ(after_worker_lost(job, "R", "m", 0).to, JobState::kCancelled);
}

TEST(SchedRetry, JobsLostTogetherAreRetriedAtDifferentTimes) {
  Job a = running_job();
  Job b = running_job();
  b.uid = "4567";
  EXPECT_NE(after_worker_lost(a, "R", "m", 0).retry_time_us,
            after_worker_lost(b, "R", "m", 0).retry_time_us);
  EXPECT_EQ(after_worker_lost(a, "R", "m", 0).retry_time_us,
            after_worker_lost(a, "R", "m", 0).retry_time_us);
}

// Fails if a job that requests more than any node has is submitted every minute forever, or if jobs
// fail because a controller's configuration was half-written for some minutes.
TEST(SchedRetry, ARefusedRequestFailsAfterAnHourUnlessItHasRun) {
  Job job = running_job();
  job.state = JobState::kStarting;
  const Error of_request = make_error(ErrorCode::kInvalidArgument, kClusterRefused,
                                      "the cluster p refused the job: too much");
  int64_t in_all_us = 0;
  for (int32_t times = 1; times < kRefusalsMax; ++times) {
    const Move move = after_cluster_refusal(job, of_request, times, 1000);
    ASSERT_EQ(move.to, JobState::kQueued);
    EXPECT_TRUE(move.uncounted);
    EXPECT_FALSE(move.worker_lost);
    EXPECT_LE(move.retry_time_us - 1000, kRetryPauseMaxUs) << "or it would not rest at all";
    in_all_us += move.retry_time_us - 1000;
  }
  EXPECT_GT(in_all_us, int64_t{50} * 60 * 1'000'000);
  const Move end = after_cluster_refusal(job, of_request, kRefusalsMax, 1000);
  EXPECT_EQ(end.to, JobState::kFailed);
  EXPECT_TRUE(can_move(job.state, end.to));
  EXPECT_EQ(end.reason, "CLUSTER_REFUSED");
  EXPECT_NE(end.message.find("the cluster p refused the job: too much"), std::string::npos);
  EXPECT_NE(end.message.find("Request fewer nodes"), std::string::npos);
  job.checkpoint_step = 7;
  EXPECT_EQ(after_cluster_refusal(job, of_request, 10 * kRefusalsMax, 1000).to, JobState::kQueued);
}

TEST(SchedRetry, AnErrorInTheClustersFileFailsNoJob) {
  const Error of_cluster = make_error(ErrorCode::kFailedPrecondition, kClusterRefused,
                                      "the cluster p refused the job: no such partition");
  const Move move = after_cluster_refusal(running_job(), of_cluster, 10 * kRefusalsMax, 1000);
  EXPECT_EQ(move.to, JobState::kQueued);
  EXPECT_TRUE(move.uncounted);
  EXPECT_EQ(move.retry_time_us, 0) << "the cluster keeps it";
  EXPECT_NE(move.message.find("A problem of its cluster, not of the job"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::server
