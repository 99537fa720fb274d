#include "kernels/gradient.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/cpu/simd/update.h"
#include "kernels/cpu/team.h"
#include "kernels/shard.h"

namespace trainyard::kernels::cpu {
namespace {

// Squares are first added within blocks of this many elements, which are the same for every team
// size.
constexpr int64_t kBlock = 4096;

int64_t blocks_of(int64_t count) { return (count + kBlock - 1) / kBlock; }

/// Returns the bytes of one term per block.
int64_t bytes_of_terms(int64_t blocks) { return blocks * static_cast<int64_t>(sizeof(double)); }

/// Writes the sum of squares of each block of `values` to `terms`, and returns the number of
/// blocks. A large tensor is split over the team; for a small one waking threads would take longer.
int64_t square_blocks(const float* values, int64_t count, double* terms, Team& team) {
  team.parallel_for(blocks_of(count), kElementsPerThread / kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlock;
      terms[block] = update_loops().square_sum(std::min(kBlock, count - first), values + first);
    }
  });
  return blocks_of(count);
}

}  // namespace

int64_t gradient_norm_workspace_bytes(const GradientNormParams& s) {
  int64_t blocks = 0;  // in the first rank's shards, which are the largest
  for (const int64_t count : s.counts) blocks += blocks_of(shard_elements(count, s.ranks));
  return bytes_of_terms(blocks);
}

void gradient_norm(const GradientNormParams& s, const GradientNormOperands<float>& o, Run run) {
  check(s, o);
  double* const terms = workspace_of<double>("gradient_norm", run);
  const double share = 1.0 / static_cast<double>(s.ranks);
  double mean = 0;
  for (int64_t rank = 0; rank < s.ranks; ++rank) {
    int64_t used = 0;
    for (size_t k = 0; k < s.counts.size(); ++k) {
      const ShardRange shard = shard_range(s.counts[k], rank, s.ranks);
      used += square_blocks(o.g[k] + shard.first, shard.count, terms + used, run.team);
    }
    mean += std::accumulate(terms, terms + used, 0.0) * share;
  }
  set_norm(mean, s.ranks, s.max_norm, o.loss_scale, o.norm, o.scale);
}

int64_t gradient_squares_workspace_bytes(const GradientSquaresParams& s) {
  int64_t blocks = 0;
  for (const int64_t count : s.counts) blocks += blocks_of(count);
  return bytes_of_terms(blocks);
}

void gradient_squares(const GradientSquaresParams& s, const GradientSquaresOperands<float>& o,
                      Run run) {
  check(s, o);
  double* const terms = workspace_of<double>("gradient_squares", run);
  int64_t used = 0;
  for (size_t k = 0; k < s.counts.size(); ++k) {
    used += square_blocks(o.g[k], s.counts[k], terms + used, run.team);
  }
  *o.squares = std::accumulate(terms, terms + used, 0.0);
}

void norm_of_squares(const NormOfSquaresParams& s, const NormOfSquaresOperands<float>& o, Run) {
  check(s, o);
  set_norm(*o.mean, s.ranks, s.max_norm, o.loss_scale, o.norm, o.scale);
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
