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

// The values of all channels as `rows` rows of C, cut into blocks whose size depends on the shape
// alone. Channels-last data are such rows as they lie; row-major ones are one channel after another
// (row_major below).
constexpr int64_t kBlockElements = 16384;

struct Blocks {
  int64_t rows, C, block_rows, count;
  explicit Blocks(const BatchNormDims& d) : rows(d.values_per_channel()), C(d.x.C) {
    block_rows = std::max<int64_t>(1, kBlockElements / C);
    count = (rows + block_rows - 1) / block_rows;
  }
  int64_t rows_of(int64_t block) const { return std::min(block_rows, rows - block * block_rows); }
};

// Workspace: two partial sums per block and channel, then four coefficients per channel.
struct Workspace {
  float *partial_a, *partial_b, *k0, *k1, *k2, *k3;
  Workspace(const Blocks& b, void* memory) {
    float* p = static_cast<float*>(memory);
    partial_a = p;
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

// One channel of row-major data as rows of 1: the same blocks serve both layouts.
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

}  // namespace

int64_t batch_norm_workspace_bytes(const BatchNormDims& d) {
  const Blocks b(d);
  return (2 * b.count + 4) * b.C * static_cast<int64_t>(sizeof(float));
}

namespace {

// What training writes y with, behind the statistics. `relu` and `residual` in the same sweep.
void write_rows(const Blocks& blocks, const float* x, const float* mean, const float* gain,
                const float* b, const float* residual, bool relu, float* y, Team& team) {
  const BatchNormLoops& loops = batch_norm_loops();
  const int64_t C = blocks.C, step = blocks.block_rows * C;
  for_blocks(blocks, team, [&](int64_t i) {
    const float* r = residual == nullptr ? nullptr : residual + i * step;
    const int64_t rows = blocks.rows_of(i);
    if (relu) {
      loops.normalise_relu_rows(rows, C, x + i * step, mean, gain, b, r, y + i * step);
    } else if (r != nullptr) {
      loops.normalise_add_rows(rows, C, x + i * step, mean, gain, b, r, y + i * step);
    } else {
      loops.normalise_rows(rows, C, x + i * step, mean, gain, b, y + i * step);
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

// Adds the blocks' partial sums up, and from them the coefficients k0, k1, k2 of dx.
void gradient_sums(const Blocks& blocks, const Workspace& ws, const float* scale,
                   const float* inv_std, float* dscale, float* db) {
  const double M = static_cast<double>(blocks.rows);
  for (int64_t c = 0; c < blocks.C; ++c) {
    const double inv = static_cast<double>(inv_std[c]);
    const double sum = add_up(blocks, ws.partial_a, c);
    const double products = add_up(blocks, ws.partial_b, c) * inv;
    const double factor = static_cast<double>(scale[c]) * inv;
    if (db != nullptr) db[c] = static_cast<float>(sum);
    if (dscale != nullptr) dscale[c] = static_cast<float>(products);
    ws.k0[c] = static_cast<float>(factor);
    ws.k1[c] = static_cast<float>(factor * inv * products / M);
    ws.k2[c] = static_cast<float>(factor * sum / M);
  }
}

// Row-major data take the steps one after another.
void add_relu_all(const BatchNormDims& d, const float* residual, float* y, Team& team) {
  team.parallel_for(
      d.x.C * d.values_per_channel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
        if (residual != nullptr) {
          elementwise_loops().add(end - begin, y + begin, residual + begin, y + begin);
        }
        activation_loops().Relu.forward(math::Relu{}, end - begin, y + begin, y + begin);
      });
}

void train_rows(const BatchNormDims& d, const float* x, const float* scale, const float* b,
                float* running_mean, float* running_var, const float* residual, bool relu, float* y,
                float* mean, float* inv_std, void* workspace, Team& team) {
  const BatchNormLoops& loops = batch_norm_loops();
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace);
  const int64_t C = blocks.C, step = blocks.block_rows * C;
  const double M = static_cast<double>(blocks.rows);
  for_blocks(blocks, team, [&](int64_t i) {
    loops.sum_rows(blocks.rows_of(i), C, x + i * step, ws.partial_a + i * C);
  });
  for (int64_t c = 0; c < C; ++c) mean[c] = static_cast<float>(add_up(blocks, ws.partial_a, c) / M);
  for_blocks(blocks, team, [&](int64_t i) {
    loops.deviation_rows(blocks.rows_of(i), C, x + i * step, mean, ws.partial_a + i * C);
  });
  for (int64_t c = 0; c < C; ++c) {
    const double squares = add_up(blocks, ws.partial_a, c);
    inv_std[c] = static_cast<float>(1.0 / std::sqrt(squares / M + d.epsilon));
    ws.k0[c] = inv_std[c] * scale[c];
    running_mean[c] = static_cast<float>(d.momentum * static_cast<double>(running_mean[c]) +
                                         (1.0 - d.momentum) * static_cast<double>(mean[c]));
    running_var[c] = static_cast<float>(d.momentum * static_cast<double>(running_var[c]) +
                                        (1.0 - d.momentum) * squares / (M - 1.0));
  }
  write_rows(blocks, x, mean, ws.k0, b, residual, relu, y, team);
}

}  // namespace

void batch_norm_training(const BatchNormDims& d, const ImageStrides& s, const float* x,
                         const float* scale, const float* b, float* running_mean,
                         float* running_var, float* y, float* mean, float* inv_std, void* workspace,
                         Team& team) {
  if (!is_rows(d, s)) {  // row-major: a channel per thread, by the reference loop
    per_channel(d, team, [&](int64_t c) {
      reference::batch_norm_training<float>(one_channel(d), s, x + c * s.c, scale + c, b + c,
                                            running_mean + c, running_var + c, y + c * s.c,
                                            mean + c, inv_std + c);
    });
    return;
  }
  train_rows(d, x, scale, b, running_mean, running_var, nullptr, false, y, mean, inv_std, workspace,
             team);
}

void batch_norm_relu_training(const BatchNormDims& d, const ImageStrides& s, const float* x,
                              const float* scale, const float* b, float* running_mean,
                              float* running_var, const float* residual, float* y, float* mean,
                              float* inv_std, void* workspace, Team& team) {
  if (!is_rows(d, s)) {
    batch_norm_training(d, s, x, scale, b, running_mean, running_var, y, mean, inv_std, workspace,
                        team);
    return add_relu_all(d, residual, y, team);
  }
  train_rows(d, x, scale, b, running_mean, running_var, residual, true, y, mean, inv_std, workspace,
             team);
}

void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s, const float* x,
                       const float* scale, const float* b, const float* mean, const float* inv_std,
                       const float* residual, bool relu, float* y, void* workspace, Team& team) {
  if (!is_rows(d, s)) {
    per_channel(d, team, [&](int64_t c) {
      reference::batch_norm_replay<float>(
          one_channel(d), s, x + c * s.c, scale + c, b + c, mean + c, inv_std + c,
          residual == nullptr ? nullptr : residual + c * s.c, relu, y + c * s.c);
    });
    return;
  }
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace);
  for (int64_t c = 0; c < blocks.C; ++c) ws.k0[c] = inv_std[c] * scale[c];
  write_rows(blocks, x, mean, ws.k0, b, residual, relu, y, team);
}

void batch_norm_relu_inference(const BatchNormDims& d, const ImageStrides& s, const float* x,
                               const float* scale, const float* b, const float* running_mean,
                               const float* running_var, const float* residual, float* y,
                               void* workspace, Team& team) {
  if (!is_rows(d, s)) {
    batch_norm_inference(d, s, x, scale, b, running_mean, running_var, y, workspace, team);
    return add_relu_all(d, residual, y, team);
  }
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace);
  inference_gain(d, scale, running_var, ws.k0);
  write_rows(blocks, x, running_mean, ws.k0, b, residual, true, y, team);
}

void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s, const float* x,
                          const float* scale, const float* b, const float* running_mean,
                          const float* running_var, float* y, void* workspace, Team& team) {
  if (!is_rows(d, s)) {
    per_channel(d, team, [&](int64_t c) {
      reference::batch_norm_inference<float>(one_channel(d), s, x + c * s.c, scale + c, b + c,
                                             running_mean + c, running_var + c, y + c * s.c);
    });
    return;
  }
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace);
  inference_gain(d, scale, running_var, ws.k0);
  write_rows(blocks, x, running_mean, ws.k0, b, nullptr, false, y, team);
}

void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s, const float* x,
                         const float* dy, const float* scale, const float* mean,
                         const float* inv_std, float* dx, float* dscale, float* db, void* workspace,
                         Team& team) {
  if (!is_rows(d, s)) {
    per_channel(d, team, [&](int64_t c) {
      reference::batch_norm_backward<float>(
          one_channel(d), s, x + c * s.c, dy + c * s.c, scale + c, mean + c, inv_std + c,
          dx == nullptr ? nullptr : dx + c * s.c, dscale == nullptr ? nullptr : dscale + c,
          db == nullptr ? nullptr : db + c);
    });
    return;
  }
  const BatchNormLoops& loops = batch_norm_loops();
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace);
  const int64_t C = blocks.C, step = blocks.block_rows * C;
  for_blocks(blocks, team, [&](int64_t i) {
    loops.gradient_rows(blocks.rows_of(i), C, x + i * step, dy + i * step, mean,
                        ws.partial_a + i * C, ws.partial_b + i * C);
  });
  gradient_sums(blocks, ws, scale, inv_std, dscale, db);
  if (dx == nullptr) return;
  for_blocks(blocks, team, [&](int64_t i) {
    loops.backward_rows(blocks.rows_of(i), C, x + i * step, dy + i * step, mean, ws.k0, ws.k1,
                        ws.k2, dx + i * step);
  });
}

int64_t batch_norm_relu_backward_workspace_bytes(const BatchNormDims& d, const ImageStrides& s,
                                                 bool wants_dx_or_g) {
  const int64_t sums = round_up(batch_norm_workspace_bytes(d), kHostAlignment);
  if (is_rows(d, s) || wants_dx_or_g) return sums;
  return sums + d.x.C * d.values_per_channel() * static_cast<int64_t>(sizeof(float));
}

void batch_norm_relu_backward(const BatchNormDims& d, const ImageStrides& s, const float* x,
                              const float* dy, const float* scale, const float* mean,
                              const float* inv_std, const float* b, const float* y, float* dx,
                              float* dscale, float* db, float* g, void* workspace, Team& team) {
  if (!is_rows(d, s)) {
    const int64_t sums = round_up(batch_norm_workspace_bytes(d), kHostAlignment);
    auto* spare = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + sums);
    per_channel(d, team, [&](int64_t c) {
      const auto at = [&](auto* p) { return p == nullptr ? nullptr : p + c * s.c; };
      const auto of = [&](auto* p) { return p == nullptr ? nullptr : p + c; };
      reference::batch_norm_relu_backward<float>(one_channel(d), s, at(x), at(dy), of(scale),
                                                 of(mean), of(inv_std), of(b), at(y), at(dx),
                                                 of(dscale), of(db), at(g), at(spare));
    });
    return;
  }
  const BatchNormLoops& loops = batch_norm_loops();
  const Blocks blocks(d);
  const Workspace ws(blocks, workspace);
  const int64_t C = blocks.C, step = blocks.block_rows * C;
  if (y == nullptr) {
    for (int64_t c = 0; c < C; ++c) ws.k3[c] = inv_std[c] * scale[c];  // as training had it
  }
  const auto at = [&](auto* p, int64_t i) { return p == nullptr ? nullptr : p + i * step; };
  for_blocks(blocks, team, [&](int64_t i) {
    loops.gradient_relu_rows(blocks.rows_of(i), C, x + i * step, dy + i * step, mean, at(y, i),
                             ws.k3, b, ws.partial_a + i * C, ws.partial_b + i * C);
  });
  gradient_sums(blocks, ws, scale, inv_std, dscale, db);
  if (dx == nullptr && g == nullptr) return;
  for_blocks(blocks, team, [&](int64_t i) {
    loops.backward_relu_rows(blocks.rows_of(i), C, x + i * step, dy + i * step, mean, at(y, i),
                             ws.k3, b, ws.k0, ws.k1, ws.k2, at(dx, i), at(g, i));
  });
}

}  // namespace trainyard::kernels::cpu
