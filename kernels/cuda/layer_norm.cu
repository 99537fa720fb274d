// Access   a warp processes a row; for long or few rows a block does. forward reads x and writes y,
//          8 B an element (4 in bf16); dx reads x and dy and writes dx, 12 B (6); further passes
//          over a row hit the L1 cache. Fusing a preceding sum adds 8 B (4) instead of 12 B (6) and
//          a launch; fusing a sum after dx adds 4 B (2) instead of 12 B (6). dscale and db are
//          summed while dx is computed, if four elements can be read at a time and a row has at
//          most 6,016; otherwise x and dy are read once more for them. Fusing a dropout of the
//          summand, for four elements at a time, adds nothing in forward, instead of 8 B (4) and a
//          launch, and 4 B (2) for dz in backward, instead of 8 B (4).
// Time     bytes / 4.8 TB/s on an H200: [8192, 768] in bf16 in 5 us forward, 13 us backward.
#include "kernels/layer_norm.h"

#include <cmath>

#include "kernels/cuda/draw.h"
#include "kernels/cuda/reduction.h"
#include "kernels/cuda/row.h"

namespace trainyard::kernels::cuda {
namespace {

/// Applies dropout to a pack. `at` is the index of its first element among all rows. A pack of four
/// begins at a multiple of four.
template <int kStep>
TRAINYARD_DEVICE void drop(const Draw& draw, int64_t at, Pack<kStep>& p) {
  const int64_t first = at / 4 * 4;
  const math::Philox4 random = draw.numbers(first);
  for (int k = 0; k < kStep; ++k) p.v[k] = draw.kept(random.v[at - first + k], p.v[k]);
}

template <bool kBlock, int kStep, bool kDrops>
TRAINYARD_KERNEL void forward(int64_t rows, int64_t width, float epsilon, bool rms, In terms,
                              In skip, Draw draw, Out total, In scale, In b, Out y, float* mean,
                              float* inv_std) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    if (skip) {  // the sum is rounded to its storage format before it is normalized
      Threads::template for_packs<kStep>(width, [&](int64_t i) {
        Pack<kStep> v = load<kStep>(terms + row * width, i);
        Pack<kStep> add = load<kStep>(skip + row * width, i);
        if constexpr (kDrops) drop(draw, row * width + i, add);
        for (int k = 0; k < kStep; ++k) v.v[k] += add.v[k];
        store<kStep>(total + row * width, i, v);
      });
    }
    // Each thread reads back only elements that it wrote itself.
    const In x_row = (skip ? In(total) : terms) + row * width;
    const Out y_row = y + row * width;
    const float W = static_cast<float>(width);
    float m = 0;
    if (!rms) {
      float sum = 0;
      Threads::template for_packs<kStep>(width, [&](int64_t i) {
        for (const float e : load<kStep>(x_row, i).v) sum += e;
      });
      m = Threads::reduce(sum, Sum()) / W;
    }
    float squares = 0;
    Threads::template for_packs<kStep>(width, [&](int64_t i) {
      for (const float e : load<kStep>(x_row, i).v) squares += (e - m) * (e - m);
    });
    const float inv = 1.0f / std::sqrt(Threads::reduce(squares, Sum()) / W + epsilon);
    Threads::template for_packs<kStep>(width, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(x_row, i);
      const Pack<kStep> s = load<kStep>(scale, i);
      for (int k = 0; k < kStep; ++k) v.v[k] = (v.v[k] - m) * inv * s.v[k];
      if (b) {
        const Pack<kStep> add = load<kStep>(b, i);
        for (int k = 0; k < kStep; ++k) v.v[k] += add.v[k];
      }
      store<kStep>(y_row, i, v);
    });
    if (Threads::lane() != 0) continue;
    if (mean != nullptr) mean[row] = m;
    if (inv_std != nullptr) inv_std[row] = inv;
  }
}

// dx and dz may alias dy, x or skip: each thread reads its elements of a row before it writes them.
// `skip` is added to dx.
template <bool kBlock, int kStep, bool kDrops>
TRAINYARD_KERNEL void backward(int64_t rows, int64_t width, bool rms, In x, In scale,
                               const float* mean, const float* inv_std, In dy, In skip, Draw draw,
                               Out dx, Out dz) {
  using Threads = RowThreads<kBlock>;
  for (int64_t row = Threads::first(); row < rows; row += Threads::step()) {
    const In x_row = x + row * width, dy_row = dy + row * width;
    const float m = rms ? 0.0f : mean[row], inv = inv_std[row];
    float sum = 0, products = 0;
    Threads::template for_packs<kStep>(width, [&](int64_t i) {
      const Pack<kStep> v = load<kStep>(x_row, i), s = load<kStep>(scale, i);
      const Pack<kStep> d = load<kStep>(dy_row, i);
      for (int k = 0; k < kStep; ++k) {
        const float g = d.v[k] * s.v[k];
        sum += g;
        products += g * (v.v[k] - m) * inv;
      }
    });
    const float W = static_cast<float>(width);
    const float g_mean = rms ? 0.0f : Threads::reduce(sum, Sum()) / W;
    const float product_mean = Threads::reduce(products, Sum()) / W;
    Threads::template for_packs<kStep>(width, [&](int64_t i) {
      const Pack<kStep> v = load<kStep>(x_row, i), s = load<kStep>(scale, i);
      Pack<kStep> d = load<kStep>(dy_row, i);
      for (int k = 0; k < kStep; ++k) {
        const float xhat = (v.v[k] - m) * inv;
        d.v[k] = inv * (d.v[k] * s.v[k] - g_mean - xhat * product_mean);
      }
      if (skip) {
        const Pack<kStep> add = load<kStep>(skip + row * width, i);
        for (int k = 0; k < kStep; ++k) d.v[k] += add.v[k];
      }
      store<kStep>(dx + row * width, i, d);
      if constexpr (kDrops) {
        drop(draw, row * width + i, d);
        store<kStep>(dz + row * width, i, d);
      }
    });
  }
}

/// A thread's elements of a row, in packs of four that are `stride` elements apart.
template <int kPacks>
struct RowPart {
  Four pack[kPacks];

  /// Issues all loads before the first value is used: the format is examined only once. Packs
  /// beyond the row are 0.
  TRAINYARD_DEVICE void load(const In& x, int64_t first, int64_t stride, int64_t width) {
    switch (x.format) {
      case Format::kF32:
        return load_as<Format::kF32>(x.data, first, stride, width);
      case Format::kBf16:
        return load_as<Format::kBf16>(x.data, first, stride, width);
      case Format::kF16:
        return load_as<Format::kF16>(x.data, first, stride, width);
    }
  }

 private:
  template <Format kFormat>
  TRAINYARD_DEVICE void load_as(const void* x, int64_t first, int64_t stride, int64_t width) {
    TRAINYARD_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int64_t i = first + p * stride;
      pack[p] = i < width ? load4(In{x, kFormat}, i) : Four{};
    }
  }
};

/// Threads of a block of backward_with_sums.
template <bool kBlock>
constexpr int kNormThreads = kBlock ? 256 : 128;
/// Blocks of it that must fit on a multiprocessor at the same time.
template <bool kBlock, bool kDrops>
constexpr int kNormResident = kBlock   ? 2
                              : kDrops ? 3
                                       : 4;
/// The largest number of packs per thread that need no more registers than there are.
constexpr int kPacksMax = 6;
/// Blocks of backward_with_sums: four per multiprocessor of an H100 or H200 with a warp for each
/// row, which keep 16 rows in flight there.
constexpr int64_t kNormGradBlocks = 528;

/// Operands of backward_with_sums.
struct NormGrad {
  int64_t rows, width;
  bool rms;
  In x, scale;
  const float *mean, *inv_std;
  In dy, skip;
  Draw draw;
  Out dx, dz;
  float* sums;  // [blocks, 2, width]: sums of dy * xhat, and of dy, over the block's rows
};

// The gradients of x, scale and b in one pass, for rows of at most kPacksMax packs per thread. Each
// thread keeps its part of a row in registers, and adds to sums of its own columns in shared
// memory.
//
// Aliases are those of backward: each thread reads its elements of a row before it writes them.
template <bool kBlock, int kPacks, bool kDrops>
TRAINYARD_KERNEL_OF(kNormThreads<kBlock>, (kNormResident<kBlock, kDrops>))
void backward_with_sums(NormGrad g) {
  using Threads = RowThreads<kBlock>;
  const int64_t width = g.width;
  TRAINYARD_DYNAMIC_SHARED(float, of_warps);  // [kBlock ? 1 : warps, 2, width]
  const int64_t first = int64_t{Threads::lane()} * 4, stride = int64_t{Threads::count()} * 4;
  const int warps = kBlock ? 1 : static_cast<int>(blockDim.x) / kWarp;
  float* const own = of_warps + (kBlock ? 0 : threadIdx.x / kWarp) * 2 * width;
  const auto sum_at = [&](int64_t i) { return reinterpret_cast<Four*>(own + i); };
  TRAINYARD_UNROLL
  for (int p = 0; p < kPacks; ++p) {
    const int64_t i = first + p * stride;
    if (i >= width) continue;
    *sum_at(i) = {};
    *sum_at(width + i) = {};
  }
  const float W = static_cast<float>(width);
  for (int64_t row = Threads::first(); row < g.rows; row += Threads::step()) {
    RowPart<kPacks> v, d, add;  // x, then xhat; dy, then dy * scale; skip
    v.load(g.x + row * width, first, stride, width);
    d.load(g.dy + row * width, first, stride, width);
    if (g.skip) add.load(g.skip + row * width, first, stride, width);
    const float m = g.rms ? 0.0f : g.mean[row], inv = g.inv_std[row];
    float sum = 0, products = 0;
    TRAINYARD_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int64_t i = first + p * stride;
      if (i >= width) continue;
      const Four s = load4(g.scale, i);
      Four of_products = *sum_at(i), of_dy = *sum_at(width + i);
      for (int k = 0; k < 4; ++k) {
        float &xhat = v.pack[p].v[k], &dg = d.pack[p].v[k];
        xhat = (xhat - m) * inv;
        of_products.v[k] += dg * xhat;
        of_dy.v[k] += dg;
        dg *= s.v[k];
        sum += dg;
        products += dg * xhat;
      }
      *sum_at(i) = of_products;
      *sum_at(width + i) = of_dy;
    }
    const float g_mean = g.rms ? 0.0f : Threads::reduce(sum, Sum()) / W;
    const float product_mean = Threads::reduce(products, Sum()) / W;
    TRAINYARD_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const int64_t i = first + p * stride;
      if (i >= width) continue;
      Pack<4> out;
      for (int k = 0; k < 4; ++k) {
        out.v[k] = inv * (d.pack[p].v[k] - g_mean - v.pack[p].v[k] * product_mean);
        if (g.skip) out.v[k] += add.pack[p].v[k];
      }
      store<4>(g.dx + row * width, i, out);
      if constexpr (kDrops) {
        drop(g.draw, row * width + i, out);
        store<4>(g.dz + row * width, i, out);
      }
    }
  }
  __syncthreads();
  for (int64_t j = threadIdx.x; j < 2 * width; j += blockDim.x) {
    float total = 0;
    for (int w = 0; w < warps; ++w) total += of_warps[w * 2 * width + j];
    g.sums[blockIdx.x * 2 * width + j] = total;
  }
}

// sums [parts, 2, width], as in backward_with_sums.
TRAINYARD_KERNEL void parameter_parts(int64_t rows, int64_t width, RowParts parts, bool rms, In x,
                                      const float* mean, const float* inv_std, In dy, float* sums) {
  for (int64_t i = thread_index(); i < parts.count * width; i += thread_count()) {
    const int64_t part = i / width, j = i % width;
    const int64_t end = std::min(rows, (part + 1) * parts.rows);
    float products = 0, sum = 0;
    for (int64_t r = part * parts.rows; r < end; ++r) {
      const float d = dy[r * width + j];
      products += d * (x[r * width + j] - (rms ? 0.0f : mean[r])) * inv_std[r];
      sum += d;
    }
    sums[2 * part * width + j] = products;
    sums[(2 * part + 1) * width + j] = sum;
  }
}

/// Adds the parts of sums [parts, 2, width] for a reduction (reduction.h).
struct NormPartSums {
  using Acc = float;
  const float* sums;
  int64_t width;
  Out dscale, db;
  TRAINYARD_DEVICE float zero() const { return 0; }
  TRAINYARD_DEVICE void add(float& acc, int64_t j, int64_t begin, int64_t end, int64_t step) const {
    for (int64_t part = begin; part < end; part += step) acc += sums[part * 2 * width + j];
  }
  TRAINYARD_DEVICE void merge(float& acc, float other) const { acc += other; }
  TRAINYARD_DEVICE void finish(int64_t j, float total) const {
    if (j < width && dscale) dscale.set(j, total);
    if (j >= width && db) db.set(j - width, total);
  }
};
void join_norm_parts(int64_t parts, const NormPartSums& sums, CUstream_st* stream) {
  ReductionPlan plan = plan_reduction(2 * sums.width, parts, Adjacent::kResults);
  plan.slice = parts;
  plan.slices = 1;
  launch({std::min(plan.blocks(), kBlocksMax)}, stream, reduce_slices<NormPartSums>, plan, sums,
         static_cast<float*>(nullptr));
}

/// The launch of backward_with_sums.
struct NormGradLaunch {
  bool block;     // whether a block processes a row, or a warp
  int64_t packs;  // of a thread
  int64_t blocks;
  int threads, shared_bytes;

  explicit NormGradLaunch(const LayerNormDims& d)
      : block(takes_block(d.rows, d.width) || d.width > kPacksMax * 4 * kWarp),
        threads(block ? kNormThreads<true> : kNormThreads<false>) {
    const int64_t row_threads = block ? threads : kWarp, rows = threads / row_threads;
    packs = (d.width + 4 * row_threads - 1) / (4 * row_threads);
    blocks = std::min((d.rows + rows - 1) / rows, kNormGradBlocks);
    shared_bytes = static_cast<int>(rows * 2 * std::min<int64_t>(d.width, kSharedMax) *
                                    static_cast<int64_t>(sizeof(float)));
  }
  bool is_possible() const { return packs <= kPacksMax && shared_bytes <= kSharedMax; }

  // 1 KiB less than a block may have, for the shared memory of block_reduce.
  static constexpr int64_t kSharedMax = 47 << 10;
};

/// Calls f(block, packs), as integral constants.
template <typename F>
void with_norm_packs(const NormGradLaunch& l, const F& f) {
  const auto with_block = [&](auto packs) {
    if (l.block) {
      f(std::bool_constant<true>(), packs);
    } else {
      f(std::bool_constant<false>(), packs);
    }
  };
  if (l.packs <= 2) return with_block(std::integral_constant<int, 2>());
  if (l.packs <= 4) return with_block(std::integral_constant<int, 4>());
  with_block(std::integral_constant<int, kPacksMax>());
}

}  // namespace

void layer_norm_forward(const LayerNormDims& d, const LayerNormOperands<Views>& o, Run run,
                        const SkipOperands& skip) {
  check(d, o);
  const bool fours = d.width % 4 == 0 && takes_four(o.x) && takes_four(o.scale) &&
                     takes_four(o.b) && takes_four(o.y) && takes_four(skip.skip) &&
                     takes_four(skip.sum);
  with_rows(d.rows, d.width, fours, [&](auto block, auto step, const Grid& grid) {
    const auto kernel = skip.dropout.step != nullptr ? forward<block.value, step.value, true>
                                                     : forward<block.value, step.value, false>;
    launch(grid, run.stream, kernel, d.rows, d.width, d.epsilon, d.rms, o.x, skip.skip,
           Draw(skip.dropout.params, skip.dropout.step), skip.sum, o.scale, o.b, o.y, o.mean,
           o.inv_std);
  });
}

int64_t layer_norm_backward_workspace_bytes(const LayerNormDims& d) {
  const int64_t parts = std::max(row_parts(d.rows).count, NormGradLaunch(d).blocks);
  return parts * 2 * d.width * static_cast<int64_t>(sizeof(float));
}

void layer_norm_backward(const LayerNormDims& d, const LayerNormGradOperands<Views>& o, Run run,
                         const SkipGradOperands& skip) {
  check(d, o);
  const bool sums = o.dscale || o.db;
  auto* const of_parts = sums ? workspace_of<float>("layer_norm_backward", run) : nullptr;
  const NormPartSums joined{of_parts, d.width, o.dscale, o.db};
  const Draw draw(skip.dropout.params, skip.dropout.step);
  const bool drops = skip.dropout.step != nullptr;
  const bool fours = d.width % 4 == 0 && takes_four(o.x) && takes_four(o.scale) &&
                     takes_four(o.dy) && takes_four(o.dx) && takes_four(skip.skip) &&
                     takes_four(skip.dz);
  if (const NormGradLaunch l(d); sums && o.dx && fours && l.is_possible()) {
    with_norm_packs(l, [&](auto block, auto packs) {
      const auto kernel = drops ? backward_with_sums<block.value, packs.value, true>
                                : backward_with_sums<block.value, packs.value, false>;
      launch({l.blocks, l.threads, l.shared_bytes}, run.stream, kernel,
             NormGrad{d.rows, d.width, d.rms, o.x, o.scale, o.mean, o.inv_std, o.dy, skip.skip,
                      draw, o.dx, skip.dz, of_parts});
    });
    join_norm_parts(l.blocks, joined, run.stream);
    return;
  }
  if (sums) {  // computed before dx, which may be dy
    const RowParts parts = row_parts(d.rows);
    launch(grid_for(parts.count * d.width), run.stream, parameter_parts, d.rows, d.width, parts,
           d.rms, o.x, o.mean, o.inv_std, o.dy, of_parts);
    join_norm_parts(parts.count, joined, run.stream);
  }
  if (!o.dx) return;
  with_rows(d.rows, d.width, fours, [&](auto block, auto step, const Grid& grid) {
    const auto kernel =
        drops ? backward<block.value, step.value, true> : backward<block.value, step.value, false>;
    launch(grid, run.stream, kernel, d.rows, d.width, d.rms, o.x, o.scale, o.mean, o.inv_std, o.dy,
           skip.skip, draw, o.dx, skip.dz);
  });
}

}  // namespace trainyard::kernels::cuda
