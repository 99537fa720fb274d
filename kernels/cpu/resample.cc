#include "kernels/resample.h"

#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {

// Resampling is bound by memory and rare, so the reference loop is used, with rows split over the
// team.
void resample(const ResampleParams& p, const float* x, float* y, Run run) {
  check(p, x, y);
  run.team.parallel_for(
      p.rows(), grain_of(4 * p.axes.back().size),
      [&](int64_t begin, int64_t end) { reference::resample<float>(p, begin, end, x, y); });
}

}  // namespace trainyard::kernels::cpu
