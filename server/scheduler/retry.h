// server/scheduler/retry.h: what happens to a job whose worker was lost (killed, crashed, hung, or
// its device failed). Such losses do not use up the user's retries. A job that makes progress
// between them continues; one that does not is a crash loop and ends, so that it does not block the
// queue.
#pragma once

#include <cstdint>
#include <string>

#include "server/scheduler/scheduler.h"
#include "server/store/job.h"

namespace trainyard::server {

inline constexpr int32_t kWorkersLostMax = 5;      // without a new checkpoint between them
inline constexpr int32_t kKernelFaultsMax = 2;     // the same, if one of our kernels failed
inline constexpr int32_t kStallsMax = 2;           // the same, if its work stood still
inline constexpr int32_t kAttemptsMax = 100;       // that count, progress or not
inline constexpr int64_t kRetryFirstUs = 200'000;  // doubles with each loss
inline constexpr int64_t kRetryLongestUs = 60'000'000;
static_assert(kRetryLongestUs + kRetryLongestUs / 4 <= kRetryPauseMaxUs);

/// The transition after a lost worker: CANCELLED if requested, FAILED (CRASH_LOOP) above a bound,
/// else QUEUED with a pause that doubles, plus up to a quarter depending on the job's uid, so that
/// jobs lost together do not return together. `reason` (WORKER_KILLED, WORKER_HUNG) and `message`
/// say what happened to the worker; `lost_max` is how often in a row this may happen. Pure.
Move after_worker_lost(const Job& job, const std::string& reason, const std::string& message,
                       int64_t now_us, int32_t lost_max = kWorkersLostMax);

/// The same after a worker whose work stood still: FAILED (STALLED) after kStallsMax such losses;
/// none of them counts as an attempt. Pure.
Move after_stall(const Job& job, const std::string& message, int64_t now_us);

/// Why a cluster's scheduler did not take an attempt. The code says what is at fault:
/// INVALID_ARGUMENT what the job asks for, FAILED_PRECONDITION what the cluster's file says,
/// UNAVAILABLE neither, which is trouble as of a host.
inline constexpr const char* kClusterRefused = "CLUSTER_REFUSED";
/// A no to what a job asks for is believed after so many, an hour: a cluster's configuration may be
/// half written just now, and some releases refuse what they could run.
inline constexpr int32_t kRefusalsMax = 60;

/// The transition after a refusal of the first two kinds, the job's `times`-th in a row: FAILED
/// only for what the job asks for, above the bound, and never for one that has run before. Pure.
Move after_cluster_refusal(const Job& job, const Error& refusal, int32_t times, int64_t now_us);

/// The pause after an attempt that could not go on because of this host (no descriptor, no memory,
/// a file that cannot be read just now), `times` in a row: it doubles up to kRetryLongestUs.
int64_t pause_after_host_trouble(int32_t times);

}  // namespace trainyard::server
