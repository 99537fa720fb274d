#include "kernels/group_norm.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// A sample consists of rows of all C channels (channels-last), or of rows of one value for each
// channel (row-major), so that the loops of batch normalization serve both. Rows are divided into
// blocks, whose sums are added in double, in order.
constexpr int64_t kBlockElements = 16384;

struct Sample {
  int64_t parts, part_stride;  // one part per channel (row-major), or one for all channels
  int64_t rows, C;             // per part
  Sample(const GroupNormDims& d, const ImageStrides& s) {
    const bool channels_last = s.is_channels_last(d.x);
    parts = channels_last ? 1 : d.x.C;
    C = channels_last ? d.x.C : 1;
    part_stride = d.x.pixels();
    rows = d.x.pixels();
  }
  /// Calls f(first channel, offset in the sample) for each part.
  template <typename F>
  void for_parts(const F& f) const {
    for (int64_t c = 0; c < parts; ++c) f(c, c * part_stride);
  }
  /// Calls f(offset in the part, rows) for each block.
  template <typename F>
  void for_blocks(const F& f) const {
    const int64_t step = std::max<int64_t>(1, kBlockElements / C);
    for (int64_t r = 0; r < rows; r += step) f(r * C, std::min(step, rows - r));
  }
};

// Six float vectors of C elements for one sample.
struct Scratch {
  float *mean, *gain, *slope, *shift, *block_a, *block_b;
  Scratch(const GroupNormDims& d, void* workspace, int64_t n) {
    float* p = static_cast<float*>(workspace) + n * 6 * d.x.C;
    for (float** v : {&mean, &gain, &slope, &shift, &block_a, &block_b}) {
      *v = p;
      p += d.x.C;
    }
  }
};

// Adds to sums[c] the results that `loop` writes to `block`, for each block of each channel; sums
// are double to limit rounding errors.
template <typename Loop>
void add_blocks(const Sample& sample, float* block, double* sums, const Loop& loop) {
  sample.for_parts([&](int64_t c, int64_t at) {
    sample.for_blocks([&](int64_t offset, int64_t rows) {
      loop(c, at + offset, rows);
      for (int64_t i = 0; i < sample.C; ++i) sums[c + i] += static_cast<double>(block[i]);
    });
  });
}

template <typename F>
void for_samples(const GroupNormDims& d, Team& team, const F& f) {
  team.parallel_for(d.x.N, grain_of(3 * d.x.C * d.x.pixels()), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) f(n);
  });
}

double sum_of_group(const GroupNormDims& d, const double* sums, int64_t g) {
  double sum = 0;
  for (int64_t c = g * d.channels(); c < (g + 1) * d.channels(); ++c) sum += sums[c];
  return sum;
}

double* sums_of(const GroupNormDims& d, void* workspace, int64_t n) {
  // These follow the float vectors of all samples; 6 * N * C floats preserve the alignment of
  // doubles.
  return reinterpret_cast<double*>(static_cast<float*>(workspace) + d.x.N * 6 * d.x.C) +
         n * 2 * d.x.C;
}

}  // namespace

int64_t group_norm_workspace_bytes(const GroupNormDims& d, const ImageStrides&) {
  return d.x.N * d.x.C * static_cast<int64_t>(6 * sizeof(float) + 2 * sizeof(double));
}

void group_norm_forward(const GroupNormDims& d, const ImageStrides& s,
                        const GroupNormOperands<float>& o, Run run) {
  check(d, o);
  Contract("group_norm_forward").workspace(run);
  const BatchNormLoops& loops = batch_norm_loops();
  const Sample sample(d, s);
  const double M = static_cast<double>(d.values());
  for_samples(d, run.team, [&](int64_t n) {
    const Scratch v(d, run.workspace, n);
    double* sums = sums_of(d, run.workspace, n);
    const float* xn = o.x + n * s.n;
    float* yn = o.y + n * s.n;
    std::fill_n(sums, 2 * d.x.C, 0.0);
    double* squares = sums + d.x.C;
    add_blocks(sample, v.block_a, sums, [&](int64_t, int64_t at, int64_t rows) {
      loops.sum_rows(rows, sample.C, xn + at, v.block_a);
    });
    for (int64_t g = 0; g < d.groups; ++g) {
      const auto m = static_cast<float>(sum_of_group(d, sums, g) / M);
      std::fill_n(v.mean + g * d.channels(), d.channels(), m);
    }
    add_blocks(sample, v.block_a, squares, [&](int64_t c, int64_t at, int64_t rows) {
      loops.deviation_rows(rows, sample.C, xn + at, v.mean + c, v.block_a);
    });
    for (int64_t g = 0; g < d.groups; ++g) {
      const auto inv =
          static_cast<float>(1.0 / std::sqrt(sum_of_group(d, squares, g) / M + d.epsilon));
      for (int64_t c = g * d.channels(); c < (g + 1) * d.channels(); ++c) {
        v.gain[c] = inv * o.scale[c];
      }
      if (o.mean != nullptr) o.mean[n * d.groups + g] = v.mean[g * d.channels()];
      if (o.inv_std != nullptr) o.inv_std[n * d.groups + g] = inv;
    }
    sample.for_parts([&](int64_t c, int64_t at) {
      loops.normalize_rows({.rows = sample.rows,
                            .C = sample.C,
                            .x = xn + at,
                            .mean = v.mean + c,
                            .scale = v.gain + c,
                            .shift = o.b + c,
                            .y = yn + at});
    });
  });
}

void group_norm_backward(const GroupNormDims& d, const ImageStrides& s,
                         const GroupNormGradOperands<float>& o, Run run) {
  check(d, o);
  Contract("group_norm_backward").workspace(run);
  const BatchNormLoops& loops = batch_norm_loops();
  const Sample sample(d, s);
  const double M = static_cast<double>(d.values());
  for_samples(d, run.team, [&](int64_t n) {
    const Scratch v(d, run.workspace, n);
    double* sums = sums_of(d, run.workspace, n);  // sums of dy
    double* products = sums + d.x.C;              // sums of dy * xhat
    const float *xn = o.x + n * s.n, *dyn = o.dy + n * s.n;
    std::fill_n(sums, 2 * d.x.C, 0.0);
    for (int64_t c = 0; c < d.x.C; ++c) v.mean[c] = o.mean[n * d.groups + c / d.channels()];
    sample.for_parts([&](int64_t c, int64_t at) {
      sample.for_blocks([&](int64_t offset, int64_t rows) {
        loops.gradient_rows(rows, sample.C, xn + at + offset, dyn + at + offset, v.mean + c,
                            v.block_a, v.block_b);
        for (int64_t i = 0; i < sample.C; ++i) {
          sums[c + i] += static_cast<double>(v.block_a[i]);
          products[c + i] += static_cast<double>(v.block_b[i]);
        }
      });
    });
    for (int64_t g = 0; g < d.groups; ++g) {
      const double inv = static_cast<double>(o.inv_std[n * d.groups + g]);
      double a = 0, a_xhat = 0;
      for (int64_t c = g * d.channels(); c < (g + 1) * d.channels(); ++c) {
        products[c] *= inv;
        a += static_cast<double>(o.scale[c]) * sums[c];
        a_xhat += static_cast<double>(o.scale[c]) * products[c];
      }
      for (int64_t c = g * d.channels(); c < (g + 1) * d.channels(); ++c) {
        v.gain[c] = static_cast<float>(inv * static_cast<double>(o.scale[c]));
        v.slope[c] = static_cast<float>(inv * inv * a_xhat / M);
        v.shift[c] = static_cast<float>(inv * a / M);
      }
    }
    if (o.dx == nullptr) return;
    float* dxn = o.dx + n * s.n;
    sample.for_parts([&](int64_t c, int64_t at) {
      loops.backward_rows({.rows = sample.rows,
                           .C = sample.C,
                           .x = xn + at,
                           .dy = dyn + at,
                           .mean = v.mean + c,
                           .scale = v.gain + c,
                           .slope = v.slope + c,
                           .shift = v.shift + c,
                           .dx = dxn + at});
    });
  });
  const auto add_samples = [&](int64_t first, float* out) {
    if (out == nullptr) return;
    for (int64_t c = 0; c < d.x.C; ++c) {
      double sum = 0;
      for (int64_t n = 0; n < d.x.N; ++n) sum += sums_of(d, run.workspace, n)[first + c];
      out[c] = static_cast<float>(sum);
    }
  };
  add_samples(0, o.db);
  add_samples(d.x.C, o.dscale);
}

}  // namespace trainyard::kernels::cpu
