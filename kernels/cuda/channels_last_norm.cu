// Access   a thread processes eight adjacent channels of a pixel at a time (16 bytes of 16-bit
//          elements, or two times 16 bytes of F32), and the same eight channels in all its pixels,
//          so that values per channel stay in registers. Loads of several pixels are issued before
//          the first is used, so that at least 64 bytes per thread are in flight. A GPU needs 16 KB
//          per multiprocessor in flight to keep its memory busy (3.35 TB/s x 0.65 us / 132).
//          Forward: the statistics read x, then x is read again and y is written: 6 B an element in
//          bf16, with a residual 8 B. Backward: the sums read x, dy and, after a residual, y, and
//          write g if it is requested; dx then reads x and g (or dy): 10 B; with max(0, .), y and g
//          14 B; 16 B with a second gradient that is added to dy. In F32 twice as much.
// Sums     use reduction.h; a thread's sums are relative to its first value, which is renewed every
//          64 pixels.
// Checked  registers, spills and load widths, by tests/cuda/kernel_budget_test.py.
#include "kernels/cuda/channels_last_norm.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/reduction.h"
#include "kernels/math/activations.h"

namespace trainyard::kernels::cuda {
namespace {

struct EightFloats {
  float v[8];
};
TRAINYARD_DEVICE EightFloats load_vector(const float* vector, int32_t group) {
  const Eight<Stored::kF32> e = load8<Stored::kF32>({vector}, group);
  EightFloats f;
  TRAINYARD_UNROLL
  for (int k = 0; k < 8; ++k) f.v[k] = e[k];
  return f;
}

/// Returns the packs that a thread of a reduction reads: channel group `result` of pixels [begin,
/// end).
TRAINYARD_DEVICE Packs packs_of(int32_t groups, int64_t result, int64_t begin, int64_t end,
                                int64_t step) {
  const auto group = static_cast<int32_t>(result);
  return {static_cast<int32_t>(begin) * groups + group, static_cast<int32_t>(end) * groups,
          static_cast<int32_t>(step) * groups};
}

template <Stored kStored>
struct MomentsOfEight {
  static constexpr int kResident = 2;
  struct Acc {
    float count, mean[8], squares[8];
  };
  int32_t groups;  // C / 8
  In x;
  BatchStatistics statistics;

  TRAINYARD_DEVICE Acc zero() const { return {}; }
  TRAINYARD_DEVICE void add(Acc& acc, int64_t result, int64_t begin, int64_t end,
                            int64_t step) const {
    // Sums are relative to a short piece's first value, so that large means cost no precision.
    constexpr int kPiece = 64, kUnroll = in_flight(kStored, 1);
    static_assert(kPiece % kUnroll == 0);
    Packs p = packs_of(groups, result, begin, end, step);
    while (p.at < p.last) {
      float origin[8] = {}, count = 0;
      Acc piece = {};
      for (int done = 0; done < kPiece && p.at < p.last; done += kUnroll) {
        Eight<kStored> v[kUnroll];
        TRAINYARD_UNROLL
        for (int u = 0; u < kUnroll; ++u) v[u] = load8<kStored>(x, p.nth(u));
        if (done == 0) {
          TRAINYARD_UNROLL
          for (int k = 0; k < 8; ++k) origin[k] = v[0][k];
        }
        TRAINYARD_UNROLL
        for (int u = 0; u < kUnroll; ++u) {
          if (!p.has(u)) continue;
          count += 1;
          TRAINYARD_UNROLL
          for (int k = 0; k < 8; ++k) {
            const float apart = v[u][k] - origin[k];
            piece.mean[k] += apart;
            piece.squares[k] += apart * apart;
          }
        }
        p.at += kUnroll * p.stride;
      }
      const float share = 1.0f / count;
      piece.count = count;
      TRAINYARD_UNROLL
      for (int k = 0; k < 8; ++k) {
        const float apart = piece.mean[k] * share, rest = piece.squares[k] - piece.mean[k] * apart;
        piece.mean[k] = origin[k] + apart;
        piece.squares[k] = rest < 0 ? 0.0f : rest;
      }
      merge(acc, piece);
    }
  }
  TRAINYARD_DEVICE void merge(Acc& acc, const Acc& other) const {
    if (other.count == 0) return;
    if (acc.count == 0) {
      acc = other;
      return;
    }
    const float count = acc.count + other.count, share = other.count / count;
    const float by = acc.count * share;
    TRAINYARD_UNROLL
    for (int k = 0; k < 8; ++k) {
      const float apart = other.mean[k] - acc.mean[k];
      acc.mean[k] += apart * share;
      acc.squares[k] += other.squares[k] + apart * apart * by;
    }
    acc.count = count;
  }
  TRAINYARD_DEVICE void finish(int64_t result, const Acc& acc) const {
    for (int k = 0; k < 8; ++k) {
      statistics(8 * result + k, {acc.count, acc.mean[k], acc.squares[k]});
    }
  }
};

/// How g is derived: kNone: g is dy; else g is dy where y > 0, with y read (kByResult) or
/// recomputed from x (kByInput).
enum class Mask : uint8_t { kNone, kByResult, kByInput };

template <Mask kMask>
TRAINYARD_DEVICE float masked(float y, float slope) {
  return kMask == Mask::kNone ? slope : math::Relu::df(y, slope);
}

/// The coefficients that compute y from x for eight channels; empty if not kUsed.
template <bool kUsed>
struct Folds {
  float a[kUsed ? 8 : 1], c[kUsed ? 8 : 1];
  TRAINYARD_DEVICE Folds(const BatchVectors& v, int32_t group) {
    if constexpr (kUsed) {
      const EightFloats mean = load_vector(v.mean, group), inv_std = load_vector(v.inv_std, group);
      const EightFloats scale = load_vector(v.scale, group), b = load_vector(v.b, group);
      TRAINYARD_UNROLL
      for (int k = 0; k < 8; ++k) {
        const Fold fold(mean.v[k], inv_std.v[k], scale.v[k], b.v[k]);
        a[k] = fold.a;
        c[k] = fold.c;
      }
    }
  }
  TRAINYARD_DEVICE float operator()(int k, float x) const { return kUsed ? a[k] * x + c[k] : 0.0f; }
};

/// a + b, rounded to the storage format.
template <Stored kStored>
TRAINYARD_DEVICE Eight<kStored> stored_sum(const Eight<kStored>& a, const Eight<kStored>& b) {
  Eight<kStored> sum;
  TRAINYARD_UNROLL
  for (int k = 0; k < 4 * Eight<kStored>::kParts; ++k) {
    uint32_t& word = sum.part[k / 4].w[k % 4];
    if constexpr (kStored == Stored::kF32) {
      word = std::bit_cast<uint32_t>(a[k] + b[k]);
    } else {
      word = narrow_pair<kStored>(a[2 * k] + b[2 * k], a[2 * k + 1] + b[2 * k + 1]);
    }
  }
  return sum;
}

/// Computes sum g and sum g xhat, and writes g in the same pass if requested. g may alias dy, skip
/// or y. With kAdds, skip is added to dy.
template <Stored kStored, Mask kMask, bool kAdds>
struct GradientSumsOfEight {
  static constexpr int kResident = 2;
  struct Acc {
    float gradients[8], products[8];
  };
  int32_t groups;
  BatchVectors vectors;
  In x, dy, skip, y;
  Out g;
  BatchSums sums;

  TRAINYARD_DEVICE Acc zero() const { return {}; }
  TRAINYARD_DEVICE void add(Acc& acc, int64_t result, int64_t begin, int64_t end,
                            int64_t step) const {
    constexpr bool kReadsY = kMask == Mask::kByResult;
    constexpr int kUnroll = in_flight(kStored, 2 + (kReadsY ? 1 : 0) + (kAdds ? 1 : 0));
    const auto group = static_cast<int32_t>(result);
    const EightFloats mean = load_vector(vectors.mean, group);
    const Folds<kMask == Mask::kByInput> made(vectors, group);
    for (Packs p = packs_of(groups, result, begin, end, step); p.at < p.last;
         p.at += kUnroll * p.stride) {
      Eight<kStored> v[kUnroll], slope[kUnroll], add[kAdds ? kUnroll : 1];
      Eight<kStored> out[kReadsY ? kUnroll : 1];
      TRAINYARD_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        v[u] = load8<kStored>(x, p.nth(u));
        slope[u] = load8<kStored>(dy, p.nth(u));
        if constexpr (kAdds) add[u] = load8<kStored>(skip, p.nth(u));
        if constexpr (kReadsY) out[u] = load8<kStored>(y, p.nth(u));
      }
      TRAINYARD_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        if (!p.has(u)) continue;
        if constexpr (kAdds) slope[u] = stored_sum(slope[u], add[u]);
        float gradient[8];
        TRAINYARD_UNROLL
        for (int k = 0; k < 8; ++k) {
          const float e = v[u][k];
          gradient[k] = masked<kMask>(kReadsY ? out[kReadsY ? u : 0][k] : made(k, e), slope[u][k]);
          acc.gradients[k] += gradient[k];
          acc.products[k] += gradient[k] * (e - mean.v[k]);
        }
        if (g) store8<kStored>(g, p.nth(u), gradient);
      }
    }
  }
  TRAINYARD_DEVICE void merge(Acc& acc, const Acc& other) const {
    TRAINYARD_UNROLL
    for (int k = 0; k < 8; ++k) {
      acc.gradients[k] += other.gradients[k];
      acc.products[k] += other.products[k];
    }
  }
  TRAINYARD_DEVICE void finish(int64_t result, const Acc& acc) const {
    for (int k = 0; k < 8; ++k) {
      const int64_t c = 8 * result + k;
      sums(c, {acc.gradients[k], acc.products[k] * vectors.inv_std[c]});
    }
  }
};

// The grid's stride is a whole number of pixels, so that each thread keeps its channels.

template <Stored kStored, bool kAdds, bool kRelu>
TRAINYARD_KERNEL_OF(kBlockThreads, 4)
void normalize_eights(int32_t packs, int32_t groups, BatchVectors vectors, In x, In residual,
                      Out y) {
  constexpr int kUnroll = in_flight(kStored, kAdds ? 2 : 1);
  Packs p = packs_of_thread(packs);
  const Folds<true> made(vectors, p.at % groups);
  for (; p.at < p.last; p.at += kUnroll * p.stride) {
    Eight<kStored> v[kUnroll], add[kAdds ? kUnroll : 1];
    TRAINYARD_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      v[u] = load8<kStored>(x, p.nth(u));
      if constexpr (kAdds) add[u] = load8<kStored>(residual, p.nth(u));
    }
    TRAINYARD_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      if (!p.has(u)) continue;
      float out[8];
      TRAINYARD_UNROLL
      for (int k = 0; k < 8; ++k) {
        float e = made(k, v[u][k]);
        if constexpr (kAdds) e += add[u][k];
        out[k] = kRelu ? math::Relu::f(e) : e;
      }
      store8<kStored>(y, p.nth(u), out);
    }
  }
}

/// dx = inv_std (scale g - mean of scale g - xhat (mean of scale g xhat)) = p g + q x + r.
template <Stored kStored, Mask kMask>
TRAINYARD_KERNEL_OF(kBlockThreads, 3)
void differentiate_eights(int32_t packs, int32_t groups, BatchVectors vectors, const Two* means,
                          In x, In dy, In y, Out dx) {
  constexpr bool kReadsY = kMask == Mask::kByResult;
  constexpr int kUnroll = in_flight(kStored, kReadsY ? 3 : 2);
  Packs at = packs_of_thread(packs);
  const int32_t group = at.at % groups;
  float p[8], q[8], r[8];
  {
    const EightFloats mean = load_vector(vectors.mean, group),
                      inv_std = load_vector(vectors.inv_std, group),
                      scale = load_vector(vectors.scale, group);
    const auto* of_means = reinterpret_cast<const float*>(means);
    const EightFloats first = load_vector(of_means, 2 * group),
                      second = load_vector(of_means, 2 * group + 1);
    TRAINYARD_UNROLL
    for (int k = 0; k < 8; ++k) {
      const float* const from = k < 4 ? first.v + 2 * k : second.v + 2 * (k - 4);
      const Two m{from[0], from[1]};
      p[k] = inv_std.v[k] * scale.v[k];
      q[k] = -inv_std.v[k] * inv_std.v[k] * m.products;
      r[k] = -inv_std.v[k] * m.gradients - q[k] * mean.v[k];
    }
  }
  const Folds<kMask == Mask::kByInput> made(vectors, group);
  for (; at.at < at.last; at.at += kUnroll * at.stride) {
    Eight<kStored> v[kUnroll], slope[kUnroll], out[kReadsY ? kUnroll : 1];
    TRAINYARD_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      v[u] = load8<kStored>(x, at.nth(u));
      slope[u] = load8<kStored>(dy, at.nth(u));
      if constexpr (kReadsY) out[u] = load8<kStored>(y, at.nth(u));
    }
    TRAINYARD_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      if (!at.has(u)) continue;
      float result[8];
      TRAINYARD_UNROLL
      for (int k = 0; k < 8; ++k) {
        const float e = v[u][k];
        const float g = masked<kMask>(kReadsY ? out[kReadsY ? u : 0][k] : made(k, e), slope[u][k]);
        result[k] = p[k] * g + (q[k] * e + r[k]);
      }
      store8<kStored>(dx, at.nth(u), result);
    }
  }
}

int32_t groups_of(const BatchNormDims& d) { return static_cast<int32_t>(d.x.C / 8); }
int32_t packs_of(const BatchNormDims& d) { return static_cast<int32_t>(d.x.elements() / 8); }
ReductionPlan plan_of(const BatchNormDims& d) {
  return plan_reduction(d.x.C / 8, d.values_per_channel(), Adjacent::kResults);
}

/// Returns a grid with at least eight packs per thread, whose number of threads is a whole number
/// of pixels.
Grid whole_pixels(const BatchNormDims& d) {
  const int64_t groups = d.x.C / 8, unit = groups / std::gcd(groups, int64_t{kBlockThreads});
  const int64_t wanted = std::min(
      (d.x.elements() / 8 + 8 * kBlockThreads - 1) / (8 * kBlockThreads), kReductionBlocks);
  return {(wanted + unit - 1) / unit * unit};
}

template <Mask kMask, bool kAdds>
void backward(const BatchNormDims& d, const BatchNormGradOperands<Views>& o, In skip,
              const BatchSums& sums, Run run) {
  const BatchVectors v{o.mean, o.inv_std, o.scale, o.b};
  const Out g = kAdds && !o.g ? o.dx : o.g;  // stores dy + skip, so that it is added only once
  with_one_format({o.x}, [&](auto stored) {
    reduce(plan_of(d),
           GradientSumsOfEight<stored.value, kMask, kAdds>{groups_of(d), v, o.x, o.dy, skip, o.y, g,
                                                           sums},
           run.workspace, run.stream);
    if (!o.dx) return;
    const bool has_g = static_cast<bool>(g);
    launch(whole_pixels(d), run.stream,
           has_g ? differentiate_eights<stored.value, Mask::kNone>
                 : differentiate_eights<stored.value, kMask>,
           packs_of(d), groups_of(d), v, sums.means, o.x, has_g ? In(g) : o.dy, has_g ? In() : o.y,
           o.dx);
  });
}

}  // namespace

bool supports_channel_eights(const BatchNormDims& d, const ImageStrides& s,
                             std::initializer_list<In> tensors,
                             std::initializer_list<const float*> vectors) {
  constexpr int64_t kChannelsMax = int64_t{1} << 20;  // bounds the grid's stride in packs
  bool aligned = takes_eight(d.x.elements(), tensors);
  for (const float* v : vectors) aligned &= takes_eight(d.x.C, {In{v}});
  return aligned && d.x.C % 8 == 0 && d.x.C <= kChannelsMax && s.c == 1;
}

int64_t channel_eights_workspace_bytes(const BatchNormDims& d) {
  return std::max(
      reduction_workspace_bytes<MomentsOfEight<Stored::kF32>>(plan_of(d)),
      reduction_workspace_bytes<GradientSumsOfEight<Stored::kF32, Mask::kNone, false>>(plan_of(d)));
}

void channel_eights_statistics(const BatchNormDims& d, In x, const BatchStatistics& statistics,
                               Run run) {
  with_one_format({x}, [&](auto stored) {
    reduce(plan_of(d), MomentsOfEight<stored.value>{groups_of(d), x, statistics}, run.workspace,
           run.stream);
  });
}

void channel_eights_normalize(const BatchNormDims& d, const BatchNormReplayOperands<Views>& o,
                              Run run) {
  with_one_format({o.x}, [&](auto stored) {
    constexpr Stored kStored = stored.value;
    const auto kernel = o.residual ? (o.relu ? normalize_eights<kStored, true, true>
                                             : normalize_eights<kStored, true, false>)
                                   : (o.relu ? normalize_eights<kStored, false, true>
                                             : normalize_eights<kStored, false, false>);
    launch(whole_pixels(d), run.stream, kernel, packs_of(d), groups_of(d),
           BatchVectors{o.mean, o.inv_std, o.scale, o.b}, o.x, o.residual, o.y);
  });
}

void channel_eights_backward(const BatchNormDims& d, const BatchNormGradOperands<Views>& o, In skip,
                             const BatchSums& sums, Run run) {
  const auto f = !o.relu ? backward<Mask::kNone, false>
                 : skip
                     ? (o.y ? backward<Mask::kByResult, true> : backward<Mask::kByInput, true>)
                     : (o.y ? backward<Mask::kByResult, false> : backward<Mask::kByInput, false>);
  f(d, o, skip, sums, run);
}

}  // namespace trainyard::kernels::cuda
