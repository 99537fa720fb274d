// server/scheduler/retry.h: decides what happens to a job whose worker was lost (killed, crashed,
// hung, or its device failed). A job that makes progress between such losses is restarted. A job
// that makes none is in a crash loop and fails, so that it does not block the queue.
#pragma once

#include <cstdint>
#include <string>

#include "server/scheduler/scheduler.h"
#include "server/store/job.h"

namespace trainyard::server {

inline constexpr int32_t kWorkersLostMax = 5;   // losses without a new checkpoint in between
inline constexpr int32_t kKernelFaultsMax = 2;  // the same limit if a kernel of the engine failed
inline constexpr int32_t kStallsMax = 2;        // the same limit if the worker made no progress
// The largest number of counted attempts, with or without progress.
inline constexpr int32_t kAttemptsMax = 100;
inline constexpr int64_t kRetryFirstUs = 200'000;  // first pause; doubles with each loss
inline constexpr int64_t kRetryLongestUs = 60'000'000;
static_assert(kRetryLongestUs + kRetryLongestUs / 4 <= kRetryPauseMaxUs);

/// Returns the job's move after a lost worker: to CANCELLED if requested, to FAILED (CRASH_LOOP)
/// above a bound, otherwise to QUEUED with an exponential back-off. The pause doubles with each
/// loss and grows by up to a quarter depending on the job's uid, so that jobs that were lost
/// together do not return together. `reason` (WORKER_KILLED, WORKER_NOT_RESPONDING) and `message`
/// say what happened to the worker; `lost_max` is how often in a row this may happen. Pure.
Move after_worker_lost(const Job& job, const std::string& reason, const std::string& message,
                       int64_t now_us, int32_t lost_max = kWorkersLostMax);

/// Returns the job's move after a worker that made no progress: to FAILED (WORKER_STALLED) after
/// more than kStallsMax such losses, otherwise as after_worker_lost(). These attempts do not count
/// towards kAttemptsMax. Pure.
Move after_stall(const Job& job, const std::string& message, int64_t now_us);

/// The reason of a job whose attempt the cluster's scheduler refused. The error's code says what is
/// at fault: INVALID_ARGUMENT the job's request, FAILED_PRECONDITION the cluster's configuration
/// file, UNAVAILABLE neither; that is treated as host trouble.
inline constexpr const char* kClusterRefused = "CLUSTER_REFUSED";
/// A job fails after this many refusals of its request, which takes about an hour. Fewer prove
/// nothing: the cluster's configuration may be in the middle of a change, and some releases refuse
/// jobs that they could run.
inline constexpr int32_t kRefusalsMax = 60;

/// Returns the job's move after its `times`-th refusal in a row with INVALID_ARGUMENT or
/// FAILED_PRECONDITION. It fails only with INVALID_ARGUMENT, from kRefusalsMax refusals on, and
/// only if it has never run. Pure.
Move after_cluster_refusal(const Job& job, const Error& refusal, int32_t times, int64_t now_us);

/// Returns the pause in microseconds after the `times`-th attempt in a row that could not continue
/// because of this host (no file descriptor, no memory, a file that is temporarily unreadable). It
/// doubles up to kRetryLongestUs.
int64_t pause_after_host_trouble(int32_t times);

}  // namespace trainyard::server
