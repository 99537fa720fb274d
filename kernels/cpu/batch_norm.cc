#include "kernels/batch_norm.h"

#include <cmath>
#include <cstddef>

#include "kernels/alignment.h"
#include "kernels/cpu/simd/activation.h"
#include "kernels/cpu/simd/elementwise.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/team.h"

namespace trainyard::kernels::cpu {
namespace {

// Treats all channels' values as `rows` rows of C, divided into blocks whose size depends only on
// the shape. Channels-last data have this form in memory; row-major data are processed channel by
// channel instead (`per_channel`).
constexpr int64_t kBlockElements = 16384;

struct Blocks {
  int64_t rows, C, block_rows, count;
  explicit Blocks(const BatchNormDims& d) : rows(d.values_per_channel()), C(d.x.C) {
    block_rows = std::max<int64_t>(1, kBlockElements / C);
    count = (rows + block_rows - 1) / block_rows;
  }
  int64_t rows_of(int64_t block) const { return std::min(block_rows, rows - block * block_rows); }
};

// Workspace: two partial sums per block and channel, then four vectors of coefficients per channel.
struct Workspace {
  float *partial_a, *partial_b, *k0, *k1, *k2, *k3;
  Workspace(const Blocks& b, float* memory) {
    partial_a = memory;
    partial_b = partial_a + b.count * b.C;
    k0 = partial_b + b.count * b.C;
    k1 = k0 + b.C;
    k2 = k1 + b.C;
    k3 = k2 + b.C;
  }
};

template <typename F>
void for_blocks(const Blocks& b, Team& team, const F& f) {
  team.parallel_for(b.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

double add_up(const Blocks& b, const float* partial, int64_t c) {
  double sum = 0;
  for (int64_t i = 0; i < b.count; ++i) sum += static_cast<double>(partial[i * b.C + c]);
  return sum;
}

// Returns whether the data are rows of C, as Blocks assumes.
bool is_rows(const BatchNormDims& d, const ImageStrides& s) { return s.is_channels_last(d.x); }

template <typename F>
void per_channel(const BatchNormDims& d, Team& team, const F& f) {
  team.parallel_for(d.x.C, grain_of(d.values_per_channel()), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) f(c);
  });
}

BatchNormDims one_channel(BatchNormDims d) {
  d.x.C = 1;
  return d;
}

/// Offsets an operand to channel c: an image, or a vector of C numbers.
struct OfChannel {
  int64_t c, stride;
  template <typename T>
  T* image(T* p) const {
    return p == nullptr ? nullptr : p + c * stride;
  }
  template <typename T>
  T* number(T* p) const {
    return p == nullptr ? nullptr : p + c;
  }
};

int64_t sums_bytes(const BatchNormDims& d) {
  const Blocks b(d);
  return (2 * b.count + 4) * b.C * static_cast<int64_t>(sizeof(float));
}

/// `all` are the operands for all rows. Residual and max(0, .) are applied in the same pass.
void write_rows(const Blocks& blocks, const NormalizedRows& all, bool relu, Team& team) {
  const BatchNormLoops& loops = batch_norm_loops();
  const int64_t step = blocks.block_rows * blocks.C;
  for_blocks(blocks, team, [&](int64_t i) {
    NormalizedRows o = all;
    o.rows = blocks.rows_of(i);
    o.x += i * step;
    o.y += i * step;
    if (o.residual != nullptr) o.residual += i * step;
    if (relu) {
      loops.normalize_relu_rows(o);
    } else if (o.residual != nullptr) {
      loops.normalize_add_rows(o);
    } else {
      loops.normalize_rows(o);
    }
  });
}
void inference_gain(const BatchNormDims& d, const float* scale, const float* running_var,
                    float* gain) {
  for (int64_t c = 0; c < d.x.C; ++c) {
    const double var = static_cast<double>(running_var[c]);
    gain[c] = static_cast<float>(1.0 / std::sqrt(var + d.epsilon)) * scale[c];
  }
}

// Adds up the blocks' partial sums and derives the coefficients k0, k1, k2 of dx from them.
void gradient_sums(const Blocks& blocks, const Workspace& ws,
                   const BatchNormGradOperands<float>& o) {
  const double M = static_cast<double>(blocks.rows);
  for (int64_t c = 0; c < blocks.C; ++c) {
    const double inv = static_cast<double>(o.inv_std[c]);
    const double sum = add_up(blocks, ws.partial_a, c);
    const double products = add_up(blocks, ws.partial_b, c) * inv;
    const double factor = static_cast<double>(o.scale[c]) * inv;
    if (o.db != nullptr) o.db[c] = static_cast<float>(sum);
    if (o.dscale != nullptr) o.dscale[c] = static_cast<float>(products);
    ws.k0[c] = static_cast<float>(factor);
    ws.k1[c] = static_cast<float>(factor * inv * products / M);
    ws.k2[c] = static_cast<float>(factor * sum / M);
  }
}

// Row-major data apply residual and ReLU in separate passes.
void add_relu(const BatchNormDims& d, const float* residual, float* y, Team& team) {
  team.parallel_for(
      d.x.C * d.values_per_channel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
        if (residual != nullptr) {
          elementwise_loops().add(end - begin, y + begin, residual + begin, y + begin);
        }
        activation_loops().Relu.forward(math::Relu{}, end - begin, y + begin, y + begin);
      });
}

}  // namespace

int64_t batch_norm_workspace_bytes(const BatchNormDims& d, const ImageStrides&) {
  return sums_bytes(d);
}

void batch_norm_training(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormTrainingOperands<float>& o, Run run) {
  check(d, o);
  if (!is_rows(d, s)) {  // row-major: one channel per thread, by the reference loop
    per_channel(d, run.team, [&](int64_t c) {
      const OfChannel of{c, s.c};
      reference::batch_norm_training<float>(one_channel(d), s,
                                            {.x = of.image(o.x),
                                             .scale = of.number(o.scale),
                                             .b = of.number(o.b),
                                             .running_mean = of.number(o.running_mean),
                                             .running_var = of.number(o.running_var),
                                             .y = of.image(o.y),
                                             .mean = of.number(o.mean),
                                             .inv_std = of.number(o.inv_std)},
                                            {});
    });
    if (o.relu) add_relu(d, o.residual, o.y, run.team);
    return;
  }
  const BatchNormLoops& loops = batch_norm_loops();
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace_of<float>("batch_norm_training", run));
  const int64_t C = blocks.C, step = blocks.block_rows * C;
  const double M = static_cast<double>(blocks.rows);
  for_blocks(blocks, run.team, [&](int64_t i) {
    loops.sum_rows(blocks.rows_of(i), C, o.x + i * step, ws.partial_a + i * C);
  });
  for (int64_t c = 0; c < C; ++c) {
    o.mean[c] = static_cast<float>(add_up(blocks, ws.partial_a, c) / M);
  }
  for_blocks(blocks, run.team, [&](int64_t i) {
    loops.deviation_rows(blocks.rows_of(i), C, o.x + i * step, o.mean, ws.partial_a + i * C);
  });
  for (int64_t c = 0; c < C; ++c) {
    const double squares = add_up(blocks, ws.partial_a, c);
    o.inv_std[c] = static_cast<float>(1.0 / std::sqrt(squares / M + d.epsilon));
    ws.k0[c] = o.inv_std[c] * o.scale[c];
    o.running_mean[c] = static_cast<float>(d.momentum * static_cast<double>(o.running_mean[c]) +
                                           (1.0 - d.momentum) * static_cast<double>(o.mean[c]));
    o.running_var[c] = static_cast<float>(d.momentum * static_cast<double>(o.running_var[c]) +
                                          (1.0 - d.momentum) * squares / (M - 1.0));
  }
  write_rows(blocks,
             {.rows = blocks.rows,
              .C = blocks.C,
              .x = o.x,
              .mean = o.mean,
              .scale = ws.k0,
              .shift = o.b,
              .residual = o.residual,
              .y = o.y},
             o.relu, run.team);
}

void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s,
                       const BatchNormReplayOperands<float>& o, Run run) {
  check(d, o);
  if (!is_rows(d, s)) {
    per_channel(d, run.team, [&](int64_t c) {
      const OfChannel of{c, s.c};
      reference::batch_norm_replay<float>(one_channel(d), s,
                                          {.x = of.image(o.x),
                                           .scale = of.number(o.scale),
                                           .b = of.number(o.b),
                                           .mean = of.number(o.mean),
                                           .inv_std = of.number(o.inv_std),
                                           .residual = of.image(o.residual),
                                           .relu = o.relu,
                                           .y = of.image(o.y)},
                                          {});
    });
    return;
  }
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace_of<float>("batch_norm_replay", run));
  for (int64_t c = 0; c < blocks.C; ++c) ws.k0[c] = o.inv_std[c] * o.scale[c];
  write_rows(blocks,
             {.rows = blocks.rows,
              .C = blocks.C,
              .x = o.x,
              .mean = o.mean,
              .scale = ws.k0,
              .shift = o.b,
              .residual = o.residual,
              .y = o.y},
             o.relu, run.team);
}

void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s,
                          const BatchNormInferenceOperands<float>& o, Run run) {
  check(d, o);
  if (!is_rows(d, s)) {
    per_channel(d, run.team, [&](int64_t c) {
      const OfChannel of{c, s.c};
      reference::batch_norm_inference<float>(one_channel(d), s,
                                             {.x = of.image(o.x),
                                              .scale = of.number(o.scale),
                                              .b = of.number(o.b),
                                              .running_mean = of.number(o.running_mean),
                                              .running_var = of.number(o.running_var),
                                              .y = of.image(o.y)},
                                             {});
    });
    if (o.relu) add_relu(d, o.residual, o.y, run.team);
    return;
  }
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace_of<float>("batch_norm_inference", run));
  inference_gain(d, o.scale, o.running_var, ws.k0);
  write_rows(blocks,
             {.rows = blocks.rows,
              .C = blocks.C,
              .x = o.x,
              .mean = o.running_mean,
              .scale = ws.k0,
              .shift = o.b,
              .residual = o.residual,
              .y = o.y},
             o.relu, run.team);
}

int64_t batch_norm_backward_workspace_bytes(const BatchNormDims& d, const ImageStrides& s,
                                            int64_t mask_bytes) {
  if (is_rows(d, s) || mask_bytes == 0) return sums_bytes(d);
  return round_up(sums_bytes(d), kHostAlignment) + d.x.elements() * mask_bytes;
}

void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormGradOperands<float>& o, Run run) {
  check(d, o);
  if (!is_rows(d, s)) {
    const int64_t sums = round_up(sums_bytes(d), kHostAlignment);
    auto* spare = reinterpret_cast<float*>(static_cast<std::byte*>(run.workspace) + sums);
    per_channel(d, run.team, [&](int64_t c) {
      const OfChannel of{c, s.c};
      reference::batch_norm_backward<float>(one_channel(d), s,
                                            {.x = of.image(o.x),
                                             .dy = of.image(o.dy),
                                             .scale = of.number(o.scale),
                                             .mean = of.number(o.mean),
                                             .inv_std = of.number(o.inv_std),
                                             .relu = o.relu,
                                             .b = of.number(o.b),
                                             .y = of.image(o.y),
                                             .dx = of.image(o.dx),
                                             .dscale = of.number(o.dscale),
                                             .db = of.number(o.db),
                                             .g = of.image(o.g)},
                                            {of.image(spare)});
    });
    return;
  }
  const BatchNormLoops& loops = batch_norm_loops();
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace_of<float>("batch_norm_backward", run));
  const int64_t C = blocks.C, step = blocks.block_rows * C;
  if (o.relu && o.y == nullptr) {
    for (int64_t c = 0; c < C; ++c) ws.k3[c] = o.inv_std[c] * o.scale[c];  // as in training
  }
  const auto at = [&](auto* p, int64_t i) { return p == nullptr ? nullptr : p + i * step; };
  const auto block = [&](int64_t i) -> NormalizedGradRows {
    return {.rows = blocks.rows_of(i),
            .C = C,
            .x = o.x + i * step,
            .dy = o.dy + i * step,
            .mean = o.mean,
            .y = at(o.y, i),
            .gain = ws.k3,
            .bias = o.b,
            .scale = ws.k0,
            .slope = ws.k1,
            .shift = ws.k2,
            .dx = at(o.dx, i),
            .g = at(o.g, i)};
  };
  for_blocks(blocks, run.team, [&](int64_t i) {
    const NormalizedGradRows rows = block(i);
    float *sum = ws.partial_a + i * C, *products = ws.partial_b + i * C;
    if (o.relu) {
      loops.gradient_relu_rows(rows, sum, products);
    } else {
      loops.gradient_rows(rows.rows, C, rows.x, rows.dy, rows.mean, sum, products);
    }
  });
  gradient_sums(blocks, ws, o);
  if (o.dx == nullptr && o.g == nullptr) return;
  for_blocks(blocks, run.team, [&](int64_t i) {
    (o.relu ? loops.backward_relu_rows : loops.backward_rows)(block(i));
  });
}

}  // namespace trainyard::kernels::cpu
