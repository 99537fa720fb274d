#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd/rows.h"
#include "kernels/cpu/soft_target.h"
#include "kernels/cpu/team.h"
#include "kernels/pointwise_loss.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kLossBlock = 4096;  // elements in a block, whose losses are added first

}  // namespace

int64_t softmax_xent_workspace_bytes(const SoftmaxXentParams& p) {
  return p.rows * static_cast<int64_t>(sizeof(double));
}

void softmax_xent_forward(const SoftmaxXentParams& p, const SoftmaxXentOperands<float, int32_t>& o,
                          Run run) {
  check(p, o);
  const int32_t* label = o.target;
  double* terms = workspace_of<double>("softmax_xent_forward", run);
  const SoftTarget target(p);
  run.team.parallel_for(p.rows, grain_of(16 * p.classes), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* z_row = o.z + n * p.classes;
      // Read before the softmax overwrites z, since p may be z.
      const float z_label = target.counts(label[n]) ? z_row[label[n]] : 0;
      double others = 0;
      if (target.smooth()) {
        for (int64_t k = 0; k < p.classes; ++k) {
          others += target.off(k) * static_cast<double>(z_row[k]);
        }
      }
      float sum = 0;
      const float max = row_loops().softmax(p.classes, z_row, o.prob + n * p.classes, &sum);
      terms[n] = 0;
      if (!target.counts(label[n])) continue;
      // sum_k c (max + log sum - z_k)
      const double log_sum = static_cast<double>(std::log(sum));
      terms[n] =
          target.on(label[n]) * (log_sum - static_cast<double>(z_label - max)) - target.entropy();
      if (target.smooth()) {
        const double off_sum = target.sum(label[n]) - target.on(label[n]);
        terms[n] += off_sum * (static_cast<double>(max) + log_sum) - others;
      }
    }
  });
  const double weight = target.total_weight(label);
  *o.loss = static_cast<float>(weight == 0 ? 0 : add_up(p.rows, terms) / weight);
}

void softmax_xent_backward(const SoftmaxXentParams& p,
                           const SoftmaxXentGradOperands<float, int32_t>& o, Run run) {
  check(p, o);
  const int32_t* label = o.target;
  const SoftTarget target(p);
  const double weight = target.total_weight(label);
  const double scale = weight == 0 ? 0 : static_cast<double>(*o.dloss) / weight;
  run.team.parallel_for(p.rows, grain_of(p.classes), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float* dz_row = o.dz + n * p.classes;
      if (weight == 0 || !target.counts(label[n])) {
        std::fill_n(dz_row, p.classes, 0.0f);
        continue;
      }
      const float* p_row = o.prob + n * p.classes;
      const float p_label = p_row[label[n]];  // read first, since dz may be p
      const double sum = target.sum(label[n]);
      row_loops().scale(p.classes, static_cast<float>(scale * sum), p_row, dz_row);
      if (target.smooth()) {
        for (int64_t k = 0; k < p.classes; ++k) {
          dz_row[k] -= static_cast<float>(scale * target.off(k));
        }
      }
      // Computed from the difference p - c, since the difference of the two scaled values would
      // lose digits where p and c are near 1.
      const double c = target.on(label[n]) + target.off(label[n]);
      dz_row[label[n]] = static_cast<float>(scale * (sum * static_cast<double>(p_label) - c));
    }
  });
}

namespace {

// The target c[n, k] for a given distribution.
class ShareTarget {
 public:
  explicit ShareTarget(const SoftmaxXentParams& p, const float* share)
      : p_(p), share_(share), even_(p.smoothing / static_cast<double>(p.classes)) {}

  double at(int64_t n, int64_t k) const {
    return weight(k) * ((1 - p_.smoothing) * given(n, k) + even_);
  }
  double total_weight() const {
    double total = 0;
    for (int64_t n = 0; n < p_.rows; ++n) {
      for (int64_t k = 0; k < p_.classes; ++k) total += weight(k) * given(n, k);
    }
    return total;
  }

 private:
  double weight(int64_t k) const {
    return p_.weights.empty() ? 1 : p_.weights[static_cast<size_t>(k)];
  }
  double given(int64_t n, int64_t k) const {
    return static_cast<double>(share_[n * p_.classes + k]);
  }

  const SoftmaxXentParams& p_;
  const float* share_;
  double even_;
};

}  // namespace

void softmax_xent_forward(const SoftmaxXentParams& p, const SoftmaxXentOperands<float, float>& o,
                          Run run) {
  check(p, o);
  double* terms = workspace_of<double>("softmax_xent_forward", run);
  const ShareTarget target(p, o.target);
  run.team.parallel_for(p.rows, grain_of(16 * p.classes), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const float* z_row = o.z + n * p.classes;
      const float max = *std::max_element(z_row, z_row + p.classes);
      double c_sum = 0, below_max = 0, entropy = 0;  // computed before p overwrites z
      for (int64_t k = 0; k < p.classes; ++k) {
        const double c = target.at(n, k);
        if (c == 0) continue;  // also avoids 0 * infinity where z is -infinity
        c_sum += c;
        below_max += c * static_cast<double>(max - z_row[k]);
        if (p.divergence) entropy -= c * std::log(c);
      }
      float sum = 0;
      row_loops().softmax(p.classes, z_row, o.prob + n * p.classes, &sum);
      terms[n] = below_max + c_sum * static_cast<double>(std::log(sum)) - entropy;
    }
  });
  const double weight = target.total_weight();
  *o.loss = static_cast<float>(weight == 0 ? 0 : add_up(p.rows, terms) / weight);
}

void softmax_xent_backward(const SoftmaxXentParams& p,
                           const SoftmaxXentGradOperands<float, float>& o, Run run) {
  check(p, o);
  const ShareTarget target(p, o.target);
  const double weight = target.total_weight();
  const double scale = weight == 0 ? 0 : static_cast<double>(*o.dloss) / weight;
  run.team.parallel_for(p.rows, grain_of(4 * p.classes), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < p.classes; ++k) sum += target.at(n, k);
      for (int64_t i = n * p.classes; i < (n + 1) * p.classes; ++i) {  // dz may alias p
        const double c = target.at(n, i - n * p.classes);
        o.dz[i] = static_cast<float>(scale * (sum * static_cast<double>(o.prob[i]) - c));
      }
    }
  });
}

int64_t pointwise_loss_workspace_bytes(int64_t count) {
  return (count + kLossBlock - 1) / kLossBlock * static_cast<int64_t>(sizeof(double));
}

template <typename F, typename Target>
void pointwise_loss(const F& f, int64_t count, const PointwiseLossOperands<float, Target>& o,
                    Run run) {
  check(count, o);
  double* terms = workspace_of<double>("pointwise_loss", run);
  const int64_t blocks = (count + kLossBlock - 1) / kLossBlock;
  run.team.parallel_for(blocks, kElementsPerThread / kLossBlock, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t last = std::min(count, (block + 1) * kLossBlock);
      double sum = 0;
      for (int64_t i = block * kLossBlock; i < last; ++i) {
        sum += static_cast<double>(f.f(o.y[i], static_cast<float>(o.t[i])));
      }
      terms[block] = sum;
    }
  });
  *o.loss = static_cast<float>(add_up(blocks, terms) / static_cast<double>(count));
}

template <typename F, typename Target>
void pointwise_loss_grad(const F& f, int64_t count,
                         const PointwiseLossGradOperands<float, Target>& o, Run run) {
  check(count, o);
  const float scale = *o.dloss / static_cast<float>(count);
  run.team.parallel_for(count, kElementsPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      o.dy[i] = scale * f.df(o.y[i], static_cast<float>(o.t[i]));
  });
}

#define TRAINYARD_INSTANTIATE_FOR(F, Target)                                                       \
  template void pointwise_loss<math::F, Target>(const math::F&, int64_t,                           \
                                                const PointwiseLossOperands<float, Target>&, Run); \
  template void pointwise_loss_grad<math::F, Target>(                                              \
      const math::F&, int64_t, const PointwiseLossGradOperands<float, Target>&, Run);
#define TRAINYARD_INSTANTIATE(F)      \
  TRAINYARD_INSTANTIATE_FOR(F, float) \
  TRAINYARD_INSTANTIATE_FOR(F, int32_t)
TRAINYARD_FOR_EACH_POINTWISE_LOSS(TRAINYARD_INSTANTIATE)

}  // namespace trainyard::kernels::cpu
