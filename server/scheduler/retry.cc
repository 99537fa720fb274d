#include "server/scheduler/retry.h"

#include <algorithm>

namespace trainyard::server {
namespace {

constexpr const char* kStalled = "WORKER_STALLED";

// Returns the 64-bit FNV-1a hash, which spreads the retries of jobs without a random source.
uint64_t hash_of(const std::string& uid, int32_t count) {
  uint64_t h = 14695981039346656037ull ^ static_cast<uint64_t>(count);
  for (const char c : uid) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return h ^ (h >> 32);
}

}  // namespace

Move after_worker_lost(const Job& job, const std::string& reason, const std::string& message,
                       int64_t now_us, int32_t lost_max) {
  Move move;
  move.worker_lost = true;
  if (job.cancel_requested) {
    move.to = JobState::kCancelled;
    move.reason = "CANCELLED";
    move.message = "Cancelled on request; its worker ended first: " + message;
    return move;
  }
  const int32_t lost = job.workers_lost + 1;  // including this loss
  const int32_t counted = job.attempt - job.attempts_uncounted;
  if (lost > lost_max || counted >= kAttemptsMax) {
    move.to = JobState::kFailed;
    move.reason = "CRASH_LOOP";
    move.message = lost > lost_max
                       ? "The worker was lost " + std::to_string(lost) +
                             " times without a new checkpoint in between; the last time: " + message
                       : "The job has had " + std::to_string(counted) +
                             " attempts, the maximum; the last one: " + message;
    return move;
  }
  const int64_t pause = std::min(kRetryLongestUs, kRetryFirstUs << (lost - 1));
  move.to = JobState::kQueued;
  move.reason = reason;
  move.message = message;
  move.retry_time_us =
      now_us + pause +
      static_cast<int64_t>(hash_of(job.uid, lost) % static_cast<uint64_t>(pause / 4));
  return move;
}

Move after_stall(const Job& job, const std::string& message, int64_t now_us) {
  Move move = after_worker_lost(job, kStalled, message, now_us, kStallsMax);
  move.uncounted = true;
  if (move.to == JobState::kFailed && job.workers_lost + 1 > kStallsMax) move.reason = kStalled;
  return move;
}

Move after_cluster_refusal(const Job& job, const Error& refusal, int32_t times, int64_t now_us) {
  Move move;
  move.to = JobState::kQueued;
  move.reason = kClusterRefused;
  move.uncounted = true;
  // The job waits until the cluster accepts jobs.
  if (refusal.code == ErrorCode::kFailedPrecondition) {
    move.message = "A problem of its cluster, not of the job: " + refusal.message +
                   ". The job waits until the cluster accepts jobs again.";
    return move;
  }
  // A job that has run before can certainly run on the cluster.
  const bool has_run = job.progress.step() > 0 || job.checkpoint_step > 0;
  if (!has_run && times >= kRefusalsMax) {
    move.to = JobState::kFailed;
    move.uncounted = false;
    move.message = "Its request was refused " + std::to_string(times) +
                   " times: " + refusal.message +
                   ". Request fewer nodes, threads or GPUs, or have the cluster changed.";
    return move;
  }
  const int64_t pause_us = pause_after_host_trouble(times);
  move.retry_time_us = now_us + pause_us;
  move.message =
      "Its request was refused: " + refusal.message + ". The job is tried again in " +
      std::to_string(pause_us / 1'000'000) + " s" +
      (has_run ? "." : ", and fails after " + std::to_string(kRefusalsMax) + " such refusals.");
  return move;
}

int64_t pause_after_host_trouble(int32_t times) {
  return std::min(kRetryLongestUs, int64_t{1'000'000} << std::clamp(times - 1, 0, 6));
}

}  // namespace trainyard::server
