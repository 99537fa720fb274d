#include "kernels/split_xent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/soft_target.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

float exp_of(float x) { return std::exp(x); }

double weight_of(const SplitXentParams& p, int64_t k) {
  return p.loss.weights.empty() ? 1 : p.loss.weights[static_cast<size_t>(k)];
}

/// Returns the sum of each part's weights.
std::vector<double> part_weights(const SplitXentParams& p) {
  std::vector<double> sums(static_cast<size_t>(p.parts));
  for (int64_t q = 0; q < p.parts; ++q) {
    const int64_t end = class_part_first(p.loss.classes, p.width, q + 1);
    for (int64_t k = class_part_first(p.loss.classes, p.width, q); k < end; ++k) {
      sums[static_cast<size_t>(q)] += weight_of(p, k);
    }
  }
  return sums;
}

}  // namespace

void class_softmax(const SplitXentParams& p, const ClassSoftmaxOperands<float>& o, Run run) {
  check(p, o);
  const bool is_smooth = p.loss.smoothing > 0;
  run.team.parallel_for(p.loss.rows, grain_of(16 * p.width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* z = o.z + n * p.width;
      float* q = o.q + n * p.width;
      float* s = o.statistics + n * kClassStatistics;
      // Read before the softmax overwrites z, since q may be z.
      const int64_t at = o.label[n] - p.first;
      s[2] = at >= 0 && at < p.count ? z[at] : 0.0f;
      double weighted = 0, weight = 0;
      for (int64_t k = 0; is_smooth && k < p.count; ++k) {
        weighted += weight_of(p, p.first + k) * static_cast<double>(z[k]);
        weight += weight_of(p, p.first + k);
      }
      float sum = 0;
      const float max = p.count == 0 ? kNothing : row_loops().softmax(p.count, z, q, &sum);
      const bool is_empty = max == kNothing;
      std::fill(q + (is_empty ? 0 : p.count), q + p.width, 0.0f);
      s[0] = is_empty ? kNoScore<float> : max;
      s[1] = is_empty ? 0.0f : sum;
      s[3] = !is_smooth || is_empty
                 ? 0.0f
                 : static_cast<float>(weighted - weight * static_cast<double>(max));
    }
  });
}

int64_t split_xent_workspace_bytes(const SplitXentParams& p) {
  return p.loss.rows * static_cast<int64_t>(sizeof(double));
}

void split_xent_forward(const SplitXentParams& p, const SplitXentOperands<float>& o, Run run) {
  check(p, o);
  double* terms = workspace_of<double>("split_xent_forward", run);
  const SoftTarget target(p.loss);
  const std::vector<double> weights = part_weights(p);
  const int64_t step = p.loss.rows * kClassStatistics;
  run.team.parallel_for(p.loss.rows, grain_of(p.width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* s = o.statistics + n * kClassStatistics;
      const RowOfParts<float> row = row_of_parts(
          s, step, p.parts, target.smooth(), exp_of,
          [&](int64_t q) { return static_cast<float>(weights[static_cast<size_t>(q)]); });
      const float factor = factor_of_part(s + p.part * step, row, exp_of);
      row_loops().scale(p.count, factor, o.q + n * p.width, o.prob + n * p.width);
      std::fill(o.prob + n * p.width + p.count, o.prob + (n + 1) * p.width, 0.0f);
      terms[n] = 0;
      const int32_t label = o.label[n];
      if (!target.counts(label)) continue;
      const double log_sum = static_cast<double>(std::log(row.sum));
      terms[n] = target.on(label) * (log_sum - static_cast<double>(row.label - row.max));
      if (target.smooth()) {
        const double share = p.loss.smoothing / static_cast<double>(p.loss.classes);
        const double off_sum = target.sum(label) - target.on(label);
        terms[n] += off_sum * log_sum - share * static_cast<double>(row.smooth);
      }
    }
  });
  const double weight = target.total_weight(o.label);
  *o.loss = static_cast<float>(weight == 0 ? 0 : add_up(p.loss.rows, terms) / weight);
}

void split_xent_backward(const SplitXentParams& p, const SplitXentGradOperands<float>& o, Run run) {
  check(p, o);
  const SoftTarget target(p.loss);
  const double weight = target.total_weight(o.label);
  const double scale = weight == 0 ? 0 : static_cast<double>(*o.dloss) / weight;
  run.team.parallel_for(p.loss.rows, grain_of(p.width), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float* dz = o.dz + n * p.width;
      const int32_t label = o.label[n];
      if (weight == 0 || !target.counts(label)) {
        std::fill_n(dz, p.width, 0.0f);
        continue;
      }
      const float* prob = o.prob + n * p.width;
      const int64_t at = label - p.first;
      const bool is_mine = at >= 0 && at < p.count;
      const float p_label = is_mine ? prob[at] : 0.0f;  // read first, since dz may be prob
      const double sum = target.sum(label);
      row_loops().scale(p.count, static_cast<float>(scale * sum), prob, dz);
      std::fill(dz + p.count, dz + p.width, 0.0f);
      for (int64_t k = 0; target.smooth() && k < p.count; ++k) {
        dz[k] -= static_cast<float>(scale * target.off(p.first + k));
      }
      if (!is_mine) continue;
      // Computed from the difference p - c, since the difference of the two scaled values would
      // lose digits where p and c are near 1.
      const double c = target.on(label) + target.off(label);
      dz[at] = static_cast<float>(scale * (sum * static_cast<double>(p_label) - c));
    }
  });
}

}  // namespace trainyard::kernels::cpu
