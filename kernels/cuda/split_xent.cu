// Access   a warp or a block processes a row. class_softmax reads z twice, the second time from a
//          cache if the rows in progress fit, and writes q: 8 to 12 B an element. Forward reads q
//          and writes p, backward reads p and writes dz: 8 B each. A row also reads 16 B for each
//          part.
// Time     bytes / 4.8 TB/s on an H200: [8192, 12565], a quarter of 50257 classes, in 0.26 ms for
//          class_softmax, and 0.17 ms each for forward and backward.
#include "kernels/split_xent.h"

#include "kernels/cuda/class_target.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/running_softmax.h"

namespace trainyard::kernels::cuda {
namespace {

/// The classes of a part: `count` classes from `first` on, in rows of `width` columns.
struct Part {
  int64_t first, count, width;
};

struct Exp {
  TRAINYARD_HD float operator()(float x) const { return math::exp(x); }
};
struct PartWeight {
  const float* weights;
  TRAINYARD_HD float operator()(int64_t part) const { return weights[part]; }
};

// q may be z: each thread reads the values of z that the row needs before the row's first
// reduction, and reads its elements before it writes them.
template <bool kBlock, int kStep>
TRAINYARD_KERNEL void class_rows(int64_t rows, Part p, ClassTarget t, const float* z,
                                 const int32_t* labels, float* statistics, float* q) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const In z_row{z + row * p.width};
    const Out q_row{q + row * p.width};
    const int64_t at = labels[row] - p.first;
    const float of_label = at >= 0 && at < p.count ? z_row[at] : 0.0f;
    RunningSoftmax s;
    Threads::template for_packs<kStep>(p.width, [&](int64_t i) {
      const Pack<kStep> v = load<kStep>(z_row, i);
      for (int k = 0; k < kStep; ++k) {
        if (i + k < p.count) s.add(v.v[k]);
      }
    });
    const float max = Threads::reduce(s.max, Max());
    const float sum = Threads::reduce(s.sum_below(max), Sum());
    float smooth = 0;
    Threads::template for_packs<kStep>(p.width, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(z_row, i);
      for (int k = 0; k < kStep; ++k) {
        if (i + k >= p.count || sum == 0) {
          v.v[k] = 0;
          continue;
        }
        const float shifted = v.v[k] - max;
        const float w = t.share == 0 ? 0.0f : t.weight(p.first + i + k);
        if (w != 0) smooth += w * shifted;
        v.v[k] = math::exp(shifted) / sum;
      }
      store<kStep>(q_row, i, v);
    });
    smooth = Threads::reduce(smooth, Sum());
    if (Threads::lane() != 0) continue;
    float* const to = statistics + row * kClassStatistics;
    to[0] = sum == 0 ? kNoScore<float> : max;
    to[1] = sum;
    to[2] = of_label;
    to[3] = smooth;
  }
}

// prob may be q: each thread reads its elements before it writes them.
template <bool kBlock, int kStep>
TRAINYARD_KERNEL void split_rows(int64_t rows, Part p, int64_t parts, int64_t part, ClassTarget t,
                                 PartWeight part_weight, const float* q, const int32_t* labels,
                                 const float* statistics, float* prob, float* row_loss) {
  using Threads = RowThreads<kBlock>;
  const int64_t step = rows * kClassStatistics;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const float* const s = statistics + row * kClassStatistics;
    const RowOfParts<float> all = row_of_parts(s, step, parts, t.share != 0, Exp(), part_weight);
    const float factor = factor_of_part(s + part * step, all, Exp());
    const In q_row{q + row * p.width};
    const Out p_row{prob + row * p.width};
    Threads::template for_packs<kStep>(p.width, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(q_row, i);
      for (int k = 0; k < kStep; ++k) v.v[k] = i + k < p.count ? v.v[k] * factor : 0.0f;
      store<kStep>(p_row, i, v);
    });
    if (Threads::lane() != 0) continue;
    const int32_t label = labels[row];
    const bool counts = label_counts(label, t.ignored);
    const float log_sum = math::log(all.sum);
    const float c = counts ? t.kept * t.weight(label) : 0.0f;
    const float of_class = c == 0 ? 0.0f : c * (all.label - all.max - log_sum);
    const float smooth = t.share == 0 ? 0.0f : t.share * (all.smooth - t.weight_sum * log_sum);
    row_loss[row] = counts ? -of_class - smooth : 0.0f;
  }
}

// dz may be prob: each thread reads its elements before it writes them.
template <bool kBlock, int kStep>
TRAINYARD_KERNEL void split_gradient(int64_t rows, Part p, ClassTarget t, const float* prob,
                                     const int32_t* labels, const float* dloss,
                                     const double* weight, float* dz) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const In p_row{prob + row * p.width};
    const Out dz_row{dz + row * p.width};
    const int32_t label = labels[row];
    const bool counts = label_counts(label, t.ignored) && *weight > 0;
    const float factor = counts ? static_cast<float>(static_cast<double>(*dloss) / *weight) : 0.0f;
    const float of_label = counts ? t.kept * t.weight(label) : 0.0f;
    const float sum = of_label + t.share * t.weight_sum;
    Threads::template for_packs<kStep>(p.width, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(p_row, i);
      for (int k = 0; k < kStep; ++k) {
        const bool is_class = i + k < p.count;
        const float smoothed =
            t.share == 0 || !is_class ? 0.0f : t.share * t.weight(p.first + i + k);
        const float c = p.first + i + k == label ? of_label + smoothed : smoothed;
        v.v[k] = counts && is_class ? factor * (sum * v.v[k] - c) : 0.0f;
      }
      store<kStep>(dz_row, i, v);
    });
  }
}

/// Whether the rows of both matrices may be read four elements at a time.
bool are_fours(int64_t width, const float* x, const float* y) {
  return width % 4 == 0 && takes_four({x}) && takes_four({y});
}

Part part_of(const SplitXentParams& p) { return {p.first, p.count, p.width}; }

}  // namespace

void class_softmax(const SplitXentParams& p, const float* weights,
                   const ClassSoftmaxOperands<Views>& o, Run run) {
  check(p, o);
  with_rows(p.loss.rows, p.width, are_fours(p.width, o.z, o.q),
            [&](auto block, auto step, const Grid& grid) {
              launch(grid, run.stream, class_rows<block.value, step.value>, p.loss.rows, part_of(p),
                     target_of(p.loss, weights), o.z, o.label, o.statistics, o.q);
            });
}

int64_t split_xent_forward_workspace_bytes(const SplitXentParams& p) {
  return p.loss.rows * static_cast<int64_t>(sizeof(float));
}

void split_xent_forward(const SplitXentParams& p, const float* weights, const float* part_weights,
                        const SplitXentOperands<Views>& o, Run run) {
  check(p, o);
  const ClassTarget t = target_of(p.loss, weights);
  auto* const row_loss = workspace_of<float>("split_xent_forward", run);
  with_rows(p.loss.rows, p.width, are_fours(p.width, o.q, o.prob),
            [&](auto block, auto step, const Grid& grid) {
              launch(grid, run.stream, split_rows<block.value, step.value>, p.loss.rows, part_of(p),
                     p.parts, p.part, t, PartWeight{part_weights}, o.q, o.label, o.statistics,
                     o.prob, row_loss);
            });
  mean_of_rows(p.loss.rows, t, row_loss, o.label, o.loss, run.stream);
}

int64_t split_xent_backward_workspace_bytes(const SplitXentParams&) {
  return static_cast<int64_t>(sizeof(double));
}

void split_xent_backward(const SplitXentParams& p, const float* weights,
                         const SplitXentGradOperands<Views>& o, Run run) {
  check(p, o);
  const ClassTarget t = target_of(p.loss, weights);
  auto* const weight = workspace_of<double>("split_xent_backward", run);
  weigh_labels(p.loss.rows, t, o.label, weight, run.stream);
  with_rows(p.loss.rows, p.width, are_fours(p.width, o.prob, o.dz),
            [&](auto block, auto step, const Grid& grid) {
              launch(grid, run.stream, split_gradient<block.value, step.value>, p.loss.rows,
                     part_of(p), t, o.prob, o.label, o.dloss, weight, o.dz);
            });
}

}  // namespace trainyard::kernels::cuda
