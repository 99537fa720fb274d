#include "kernels/gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/simd/update.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// Elements whose squares are added before blocks are: the same blocks for every team.
constexpr int64_t kBlock = 4096;

int64_t blocks_of(int64_t count) { return (count + kBlock - 1) / kBlock; }

}  // namespace

int64_t gradient_norm_workspace_bytes(const GradientNormParams& s) {
  int64_t blocks = 0;
  for (const int64_t count : s.counts) blocks += blocks_of(count);
  return blocks * static_cast<int64_t>(sizeof(double));
}

// One region per large tensor; small ones are not worth waking a thread.
void gradient_norm(const GradientNormParams& s, const GradientNormOperands<float>& o, Run run) {
  check(s, o);
  double* terms = workspace_of<double>("gradient_norm", run);
  int64_t used = 0;
  for (size_t k = 0; k < s.counts.size(); ++k) {
    const float* values = o.g[k];
    const int64_t count = s.counts[k];
    double* mine = terms + used;
    run.team.parallel_for(
        blocks_of(count), kElementsPerThread / kBlock, [&](int64_t begin, int64_t end) {
          for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * kBlock;
            mine[block] =
                update_loops().square_sum(std::min(kBlock, count - first), values + first);
          }
        });
    used += blocks_of(count);
  }
  double sum = 0;
  for (int64_t i = 0; i < used; ++i) sum += terms[i];
  const double by = o.loss_scale == nullptr ? 1 : static_cast<double>(*o.loss_scale);
  const double root = std::sqrt(sum) / by;
  *o.norm = static_cast<float>(root);
  if (o.scale != nullptr) *o.scale = static_cast<float>(math::clip_scale(root, s.max_norm) / by);
}

void clip_gradient(const ClipGradientParams& s, const ClipGradientOperands<float>& o, Run run) {
  check(s, o);
  const float bound =
      s.bound == 0 ? std::numeric_limits<float>::infinity() : static_cast<float>(s.bound);
  const float factor = o.scale == nullptr ? 1.0f : *o.scale;
  run.team.parallel_for(s.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    update_loops().clip_gradient(factor, bound, end - begin, o.g + begin, o.y + begin);
  });
}

void accumulate_gradient(const AccumulateGradientParams& s,
                         const AccumulateGradientOperands<float>& o, Run run) {
  check(s, o);
  run.team.parallel_for(s.count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    const auto factor = static_cast<float>(s.share);
    if (*o.micro_step == 0) {
      update_loops().scale(factor, end - begin, o.g + begin, o.sum + begin);
    } else {
      update_loops().accumulate(factor, end - begin, o.g + begin, o.sum + begin);
    }
  });
}

void loss_scale_update(const math::LossScaling& s, const float* norm, const float* learning_rate,
                       LossScale<float> kept, LossScaleStep<float> step, Run) {
  check(norm, learning_rate, kept, step);
  update_loss_scale(s, *norm, *learning_rate, kept, step);
}

}  // namespace trainyard::kernels::cpu
