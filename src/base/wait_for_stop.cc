#include "src/base/wait_for_stop.h"

#include <algorithm>

#include "src/base/mutex.h"

namespace trainyard {

void wait_for_stop(const std::stop_token& stop, std::chrono::duration<double> time_max) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::duration<double> kYear =
      std::chrono::hours(365 * 24);  // the bound keeps `end` from overflowing
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::min(time_max, kYear));
  Mutex mu;
  CondVar never;
  MutexLock lock(mu);
  never.wait_until(lock, stop, end, [] { return false; });
}

}  // namespace trainyard
