// Access   softmax_xent: a warp or a block processes a row; forward reads z and writes p, 8 B an
//          element; backward reads p and writes dz, 8 B. Forward's second pass over a row hits a
//          cache, except beyond about 10 000 classes, where the rows in progress exceed both
//          caches: 12 B. Pointwise: 8 B an element forward, 12 B backward, adjacent threads at
//          adjacent elements. One block computes the sums over rows or blocks: 4 B for each.
// Time     bytes / 4.8 TB/s on an H200: [8192, 50257] in 1.0 ms forward, 0.7 ms backward.
#include "kernels/cuda/class_target.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/running_softmax.h"
#include "kernels/pointwise_loss.h"
#include "kernels/softmax_xent.h"

#include <cmath>
#include <initializer_list>

namespace trainyard::kernels::cuda {
namespace {

constexpr int64_t kRowsThatABlockSums = 1024;

/// Computes a row's p and loss with the threads of `Threads`. prob may be z: each thread reads the
/// values of z that the row's loss needs before the row's first reduction. With is_written false,
/// the threads only take part in the reductions.
template <typename Threads, int kStep>
TRAINYARD_DEVICE void xent_row(int64_t row, bool is_written, int64_t classes, const ClassTarget& t,
                               const float* z, const int32_t* labels, float* prob,
                               float* row_loss) {
  const In z_row{z + row * classes};
  const Out p_row{prob + row * classes};
  const int32_t label = labels[row];
  const bool counts = label_counts(label, t.ignored);
  const float of_label = counts ? z_row[label] : 0.0f;
  RunningSoftmax s;
  Threads::template for_packs<kStep>(classes, [&](int64_t i) {
    for (const float e : load<kStep>(z_row, i).v) s.add(e);
  });
  const float max = Threads::reduce(s.max, Max());
  const float sum = Threads::reduce(s.sum_below(max), Sum());
  const float log_sum = math::log(sum);
  float smooth = 0;  // sum of w log p
  Threads::template for_packs<kStep>(classes, [&](int64_t i) {
    Pack<kStep> v = load<kStep>(z_row, i);
    for (int k = 0; k < kStep; ++k) {
      const float shifted = v.v[k] - max;
      const float w = t.share == 0 ? 0.0f : t.weight(i + k);
      if (w != 0) smooth += w * (shifted - log_sum);  // avoids 0 * infinity
      v.v[k] = math::exp(shifted) / sum;
    }
    if (is_written) store<kStep>(p_row, i, v);
  });
  smooth = Threads::reduce(smooth, Sum());
  if (Threads::lane() != 0 || !is_written) return;
  const float c = counts ? t.kept * t.weight(label) : 0.0f;
  const float of_class = c == 0 ? 0.0f : c * (of_label - max - log_sum);
  row_loss[row] = counts ? t.entropy - of_class - t.share * smooth : 0.0f;
}

template <bool kBlock, int kStep>
TRAINYARD_KERNEL void xent_rows(int64_t rows, int64_t classes, ClassTarget t, const float* z,
                                const int32_t* labels, float* prob, float* row_loss) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    xent_row<Threads, kStep>(row, true, classes, t, z, labels, prob, row_loss);
  }
}

TRAINYARD_KERNEL void mean_by_weight(int64_t rows, ClassTarget t, const float* row_loss,
                                     const int32_t* labels, float* loss) {
  write_mean(rows, t, row_loss, labels, loss);
}

// For a small batch with few classes, one block computes rows and mean, which saves a launch.
constexpr int64_t kRowsOfOneBlock = 256, kClassesOfOneBlock = 32;
bool takes_one_block(const SoftmaxXentParams& p) {
  return p.rows <= kRowsOfOneBlock && p.classes <= kClassesOfOneBlock;
}

/// Eight adjacent threads share a row.
struct EightThreads {
  static constexpr int kCount = 8;
  static TRAINYARD_DEVICE int lane() { return static_cast<int>(threadIdx.x) % kCount; }
  template <typename Op>
  static TRAINYARD_DEVICE float reduce(float value, Op op) {
    for (int distance = kCount / 2; distance > 0; distance /= 2) {
      value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
    }
    return value;
  }
  template <int kStep, typename F>
  static TRAINYARD_DEVICE void for_packs(int64_t width, const F& f) {
    for (int64_t i = int64_t{lane()} * kStep; i < width; i += int64_t{kCount} * kStep) f(i);
  }
};

TRAINYARD_KERNEL void xent_in_one_block(int64_t rows, int64_t classes, ClassTarget t,
                                        const float* z, const int32_t* labels, float* prob,
                                        float* row_loss, float* loss) {
  const int64_t at_once = blockDim.x / EightThreads::kCount;
  // All threads of a warp must take part in reductions, so threads beyond the last row repeat that
  // row without writing.
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t own = first + threadIdx.x / EightThreads::kCount;
    const bool is_there = own < rows;
    xent_row<EightThreads, 1>(is_there ? own : rows - 1, is_there, classes, t, z, labels, prob,
                              row_loss);
  }
  __syncthreads();
  write_mean(rows, t, row_loss, labels, loss);
}

TRAINYARD_KERNEL void write_weight(int64_t rows, ClassTarget t, const int32_t* labels,
                                   double* weight) {
  const double total = total_weight(rows, t, labels);
  if (threadIdx.x == 0) *weight = total;
}

// dz may be prob: each thread reads its elements before it writes them. `weight` is W. If it is
// nullptr, each block computes W, which for a small batch is faster than a launch.
template <bool kBlock, int kStep>
TRAINYARD_KERNEL void xent_gradient(int64_t rows, int64_t classes, ClassTarget t, const float* prob,
                                    const int32_t* labels, const float* dloss, const double* weight,
                                    float* dz) {
  using Threads = RowThreads<kBlock>;
  const double by = weight == nullptr ? total_weight(rows, t, labels) : *weight;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const In p_row{prob + row * classes};
    const Out dz_row{dz + row * classes};
    const int32_t label = labels[row];
    const bool counts = label_counts(label, t.ignored) && by > 0;
    const float factor = counts ? static_cast<float>(static_cast<double>(*dloss) / by) : 0.0f;
    const float of_label = counts ? t.kept * t.weight(label) : 0.0f;
    const float sum = of_label + t.share * t.weight_sum;
    Threads::template for_packs<kStep>(classes, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(p_row, i);
      for (int k = 0; k < kStep; ++k) {
        const float smoothed = t.share == 0 ? 0.0f : t.share * t.weight(i + k);
        const float c = i + k == label ? of_label + smoothed : smoothed;
        v.v[k] = counts ? factor * (sum * v.v[k] - c) : 0.0f;
      }
      store<kStep>(dz_row, i, v);
    });
  }
}

// Computes rows with given distributions as targets. prob may be z, as in xent_row.
template <bool kBlock, int kStep>
TRAINYARD_KERNEL void share_rows(int64_t rows, int64_t classes, ClassTarget t, bool divergence,
                                 const float* z, const float* shares, float* prob, float* row_loss,
                                 float* row_weight) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const In z_row{z + row * classes}, share_row{shares + row * classes};
    const Out p_row{prob + row * classes};
    RunningSoftmax s;
    Threads::template for_packs<kStep>(classes, [&](int64_t i) {
      for (const float e : load<kStep>(z_row, i).v) s.add(e);
    });
    const float max = Threads::reduce(s.max, Max());
    const float sum = Threads::reduce(s.sum_below(max), Sum());
    const float log_sum = math::log(sum);
    float loss = 0, weight = 0;
    Threads::template for_packs<kStep>(classes, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(z_row, i);
      const Pack<kStep> given = load<kStep>(share_row, i);
      for (int k = 0; k < kStep; ++k) {
        const float shifted = v.v[k] - max, w = t.weight(i + k);
        const float c = w * (t.kept * given.v[k] + t.share);
        weight += w * given.v[k];
        if (c != 0) {  // avoids 0 * infinity
          loss -= c * (shifted - log_sum - (divergence ? math::log(c) : 0.0f));
        }
        v.v[k] = math::exp(shifted) / sum;
      }
      store<kStep>(p_row, i, v);
    });
    loss = Threads::reduce(loss, Sum());
    weight = Threads::reduce(weight, Sum());
    if (Threads::lane() != 0) continue;
    row_loss[row] = loss;
    row_weight[row] = weight;
  }
}

TRAINYARD_KERNEL void mean_by_row_weight(int64_t rows, const float* row_loss,
                                         const float* row_weight, float* loss) {
  double sum = 0, weight = 0;
  for (int64_t n = threadIdx.x; n < rows; n += blockDim.x) {
    sum += static_cast<double>(row_loss[n]);
    weight += static_cast<double>(row_weight[n]);
  }
  const double total = block_sum_double(sum), by = block_sum_double(weight);
  if (threadIdx.x == 0) *loss = by == 0 ? 0.0f : static_cast<float>(total / by);
}

template <bool kBlock, int kStep>
TRAINYARD_KERNEL void share_weights(int64_t rows, int64_t classes, ClassTarget t,
                                    const float* shares, float* row_weight) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const In share_row{shares + row * classes};
    float weight = 0;
    Threads::template for_packs<kStep>(classes, [&](int64_t i) {
      const Pack<kStep> given = load<kStep>(share_row, i);
      for (int k = 0; k < kStep; ++k) weight += t.weight(i + k) * given.v[k];
    });
    weight = Threads::reduce(weight, Sum());
    if (Threads::lane() == 0) row_weight[row] = weight;
  }
}

TRAINYARD_KERNEL void sum_weights(int64_t rows, const float* row_weight, double* weight) {
  double sum = 0;
  for (int64_t n = threadIdx.x; n < rows; n += blockDim.x) {
    sum += static_cast<double>(row_weight[n]);
  }
  const double total = block_sum_double(sum);
  if (threadIdx.x == 0) *weight = total;
}

// dz may be prob: each thread reads its elements before it writes them.
template <bool kBlock, int kStep>
TRAINYARD_KERNEL void share_gradient(int64_t rows, int64_t classes, ClassTarget t,
                                     const float* prob, const float* shares, const float* dloss,
                                     const double* weight, float* dz) {
  using Threads = RowThreads<kBlock>;
  const float factor =
      *weight > 0 ? static_cast<float>(static_cast<double>(*dloss) / *weight) : 0.0f;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const In p_row{prob + row * classes}, share_row{shares + row * classes};
    const Out dz_row{dz + row * classes};
    float sum = 0;
    Threads::template for_packs<kStep>(classes, [&](int64_t i) {
      const Pack<kStep> given = load<kStep>(share_row, i);
      for (int k = 0; k < kStep; ++k) sum += t.weight(i + k) * (t.kept * given.v[k] + t.share);
    });
    sum = Threads::reduce(sum, Sum());
    Threads::template for_packs<kStep>(classes, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(p_row, i);
      const Pack<kStep> given = load<kStep>(share_row, i);
      for (int k = 0; k < kStep; ++k) {
        v.v[k] = factor * (sum * v.v[k] - t.weight(i + k) * (t.kept * given.v[k] + t.share));
      }
      store<kStep>(dz_row, i, v);
    });
  }
}

/// Whether the rows of all these matrices may be read four elements at a time.
bool fours_of(int64_t classes, std::initializer_list<const float*> rows) {
  return classes % 4 == 0 &&
         std::ranges::all_of(rows, [](const float* x) { return takes_four({x}); });
}

}  // namespace

void weigh_labels(int64_t rows, const ClassTarget& t, const int32_t* labels, double* weight,
                  CUstream_st* stream) {
  launch({1, kSumThreads}, stream, write_weight, rows, t, labels, weight);
}

void mean_of_rows(int64_t rows, const ClassTarget& t, const float* row_loss, const int32_t* labels,
                  float* loss, CUstream_st* stream) {
  launch({1, kSumThreads}, stream, mean_by_weight, rows, t, row_loss, labels, loss);
}

int64_t softmax_xent_forward_workspace_bytes(const SoftmaxXentParams& p) {
  return 2 * p.rows * static_cast<int64_t>(sizeof(float));  // losses and weights of rows
}

int64_t softmax_xent_backward_workspace_bytes(const SoftmaxXentParams& p) {
  return static_cast<int64_t>(sizeof(double)) + p.rows * static_cast<int64_t>(sizeof(float));
}

void softmax_xent_forward(const SoftmaxXentParams& p, const float* weights,
                          const SoftmaxXentOperands<Views, float>& o, Run run) {
  check(p, o);
  const ClassTarget t = target_of(p, weights);
  auto* const row_loss = workspace_of<float>("softmax_xent_forward", run);
  float* const row_weight = row_loss + p.rows;
  with_rows(p.rows, p.classes, fours_of(p.classes, {o.z, o.target, o.prob}),
            [&](auto block, auto step, const Grid& grid) {
              launch(grid, run.stream, share_rows<block.value, step.value>, p.rows, p.classes, t,
                     p.divergence, o.z, o.target, o.prob, row_loss, row_weight);
            });
  launch({1, kSumThreads}, run.stream, mean_by_row_weight, p.rows, row_loss, row_weight, o.loss);
}

void softmax_xent_backward(const SoftmaxXentParams& p, const float* weights,
                           const SoftmaxXentGradOperands<Views, float>& o, Run run) {
  check(p, o);
  const ClassTarget t = target_of(p, weights);
  auto* const weight = workspace_of<double>("softmax_xent_backward", run);
  auto* const row_weight = reinterpret_cast<float*>(weight + 1);
  with_rows(p.rows, p.classes, fours_of(p.classes, {o.target}),
            [&](auto block, auto step, const Grid& grid) {
              launch(grid, run.stream, share_weights<block.value, step.value>, p.rows, p.classes, t,
                     o.target, row_weight);
            });
  launch({1, kSumThreads}, run.stream, sum_weights, p.rows, row_weight, weight);
  with_rows(p.rows, p.classes, fours_of(p.classes, {o.prob, o.target, o.dz}),
            [&](auto block, auto step, const Grid& grid) {
              launch(grid, run.stream, share_gradient<block.value, step.value>, p.rows, p.classes,
                     t, o.prob, o.target, o.dloss, weight, o.dz);
            });
}

void softmax_xent_forward(const SoftmaxXentParams& p, const float* weights,
                          const SoftmaxXentOperands<Views, int32_t>& o, Run run) {
  check(p, o);
  const ClassTarget t = target_of(p, weights);
  auto* const row_loss = workspace_of<float>("softmax_xent_forward", run);
  if (takes_one_block(p)) {
    launch({1, kSumThreads}, run.stream, xent_in_one_block, p.rows, p.classes, t, o.z, o.target,
           o.prob, row_loss, o.loss);
    return;
  }
  with_rows(p.rows, p.classes, fours_of(p.classes, {o.z, o.prob}),
            [&](auto block, auto step, const Grid& grid) {
              launch(grid, run.stream, xent_rows<block.value, step.value>, p.rows, p.classes, t,
                     o.z, o.target, o.prob, row_loss);
            });
  mean_of_rows(p.rows, t, row_loss, o.target, o.loss, run.stream);
}

void softmax_xent_backward(const SoftmaxXentParams& p, const float* weights,
                           const SoftmaxXentGradOperands<Views, int32_t>& o, Run run) {
  check(p, o);
  const ClassTarget t = target_of(p, weights);
  const bool sums_itself = p.rows <= kRowsThatABlockSums;
  auto* const weight = sums_itself ? nullptr : workspace_of<double>("softmax_xent_backward", run);
  if (!sums_itself) {
    weigh_labels(p.rows, t, o.target, weight, run.stream);
  }
  with_rows(p.rows, p.classes, fours_of(p.classes, {o.prob, o.dz}),
            [&](auto block, auto step, const Grid& grid) {
              launch(grid, run.stream, xent_gradient<block.value, step.value>, p.rows, p.classes, t,
                     o.prob, o.target, o.dloss, weight, o.dz);
            });
}

namespace {

/// Returns the number of blocks: enough to fill a GPU; threads process further elements in a
/// grid-stride loop.
int64_t loss_blocks(int64_t count) {
  return std::min<int64_t>((count + kBlockThreads - 1) / kBlockThreads, 1024);
}

template <typename F, typename Target>
TRAINYARD_KERNEL void loss_parts(F f, int64_t count, const float* y, const Target* t,
                                 float* parts) {
  float sum = 0;
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    sum += f.f(y[i], static_cast<float>(t[i]));
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

TRAINYARD_KERNEL void mean_of_parts(int64_t parts, int64_t count, const float* sums, float* loss) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < parts; i += blockDim.x) sum += static_cast<double>(sums[i]);
  const double total = block_sum_double(sum);
  if (threadIdx.x == 0) *loss = static_cast<float>(total / static_cast<double>(count));
}

template <typename F, typename Target>
TRAINYARD_KERNEL void loss_gradient(F f, int64_t count, const float* y, const Target* t,
                                    const float* dloss, float* dy) {
  const float scale = *dloss / static_cast<float>(count);
  for (int64_t i = thread_index(); i < count; i += thread_count()) {
    dy[i] = scale * f.df(y[i], static_cast<float>(t[i]));
  }
}

}  // namespace

int64_t pointwise_loss_workspace_bytes(int64_t count) {
  return loss_blocks(count) * static_cast<int64_t>(sizeof(float));
}

template <typename F, typename Target>
void pointwise_loss(const F& f, int64_t count, const PointwiseLossOperands<Views, Target>& o,
                    Run run) {
  check(count, o);
  auto* const parts = workspace_of<float>("pointwise_loss", run);
  const int64_t blocks = loss_blocks(count);
  launch({blocks}, run.stream, loss_parts<F, Target>, f, count, o.y, o.t, parts);
  launch({1}, run.stream, mean_of_parts, blocks, count, parts, o.loss);
}

template <typename F, typename Target>
void pointwise_loss_grad(const F& f, int64_t count,
                         const PointwiseLossGradOperands<Views, Target>& o, Run run) {
  check(count, o);
  launch(grid_for(count), run.stream, loss_gradient<F, Target>, f, count, o.y, o.t, o.dloss, o.dy);
}

#define TRAINYARD_INSTANTIATE_FOR(F, Target)                                                       \
  template void pointwise_loss<math::F, Target>(const math::F&, int64_t,                           \
                                                const PointwiseLossOperands<Views, Target>&, Run); \
  template void pointwise_loss_grad<math::F, Target>(                                              \
      const math::F&, int64_t, const PointwiseLossGradOperands<Views, Target>&, Run);
#define TRAINYARD_INSTANTIATE(F)      \
  TRAINYARD_INSTANTIATE_FOR(F, float) \
  TRAINYARD_INSTANTIATE_FOR(F, int32_t)
TRAINYARD_FOR_EACH_POINTWISE_LOSS(TRAINYARD_INSTANTIATE)
#undef TRAINYARD_INSTANTIATE
#undef TRAINYARD_INSTANTIATE_FOR

}  // namespace trainyard::kernels::cuda
