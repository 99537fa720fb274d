// server/scheduler/retry.h: what becomes of a job whose worker was lost (killed, crashed, hung, or
// its device failed). Such losses do not use up the user's retries. A job that gets further between
// them goes on; one that does not is a crash loop and ends, so that the queue behind it flows.
#pragma once

#include <cstdint>
#include <string>

#include "server/scheduler/scheduler.h"
#include "server/store/job.h"

namespace trainyard::server {

inline constexpr int32_t kWorkersLostMax = 5;      // without a new checkpoint between them
inline constexpr int32_t kKernelFaultsMax = 2;     // likewise, where our own kernel failed
inline constexpr int32_t kAttemptsMax = 100;       // in all, progress or not
inline constexpr int64_t kRetryFirstUs = 200'000;  // doubles with each loss
inline constexpr int64_t kRetryLongestUs = 60'000'000;
static_assert(kRetryLongestUs + kRetryLongestUs / 4 <= kRetryPauseMaxUs);

/// The move after a lost worker: CANCELLED if that was asked for, FAILED (CRASH_LOOP) past a bound,
/// else QUEUED with a pause that doubles, plus up to a quarter by the job's uid, so that jobs lost
/// together do not return together. `reason` (WORKER_KILLED, WORKER_HUNG) and `message` say what
/// happened to the worker; `lost_max` is how often in a row it may. Pure.
Move after_worker_lost(const Job& job, const std::string& reason, const std::string& message,
                       int64_t now_us, int32_t lost_max = kWorkersLostMax);

}  // namespace trainyard::server
