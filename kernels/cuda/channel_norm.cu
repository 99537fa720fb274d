// Batch, group and instance normalization: all three compute statistics of channels and then make a
// second pass over the image.
//
// Access   statistics: adjacent threads process adjacent channels, four each, in channels-last, and
//          adjacent pixels in row-major; x is read only once, even if its mean is large, because
//          moments are combined instead of squares. Then x is read again and y is written: 12 B an
//          element (6 in bf16), with a residual 16 B. Backward reads x and dy twice and writes dx:
//          20 B (10); with max(0, .) and a residual it also reads y twice and writes g: 32 B.
//          Images of up to a few dozen MB stay in the L2 cache between the passes.
// Sums     use reduction.h.
// Time     bytes / 4.8 TB/s on an H200: [256, 64, 56, 56] in 128 us forward, 214 us backward, in
//          F32.
#include <cmath>

#include "kernels/alignment.h"
#include "kernels/arithmetic.h"
#include "kernels/cuda/channels_last_norm.h"
#include "kernels/cuda/reduction.h"
#include "kernels/cuda/walk.h"
#include "kernels/group_norm.h"
#include "kernels/math/activations.h"

namespace trainyard::kernels::cuda {
namespace {

/// Offsets of a result's values. A result is a channel of all images or of one image (then there
/// are N * C results), or in channels-last a group of `width` adjacent channels.
struct Channels {
  Divisor per_image, pixels;
  int64_t image = 0, channel = 0, pixel = 0;  // strides
  Channels(const ImageDims& d, const ImageStrides& s, int width)
      : per_image(d.C / width), pixels(d.pixels()), image(s.n), channel(s.c * width), pixel(s.w) {}
  TRAINYARD_HD int64_t first(int64_t result) const {
    const int64_t n = per_image.quotient(result);
    return n * image + (result - n * per_image.value) * channel;
  }
  TRAINYARD_HD int64_t value(int64_t j) const {
    const int64_t n = pixels.quotient(j);
    return n * image + (j - n * pixels.value) * pixel;
  }
};

/// One value each of kWidth adjacent channels.
template <int kWidth>
struct Values {
  float v[kWidth];
};
template <int kWidth>
TRAINYARD_DEVICE Values<kWidth> load(const In& x, int64_t at) {
  if constexpr (kWidth == 4) {
    const Four f = load4(x, at);
    return {{f.v[0], f.v[1], f.v[2], f.v[3]}};
  } else {
    return {{x[at]}};
  }
}

TRAINYARD_DEVICE void join(Moments& a, const Moments& b) {
  if (b.count == 0) return;
  if (a.count == 0) {
    a = b;
    return;
  }
  const float count = a.count + b.count, apart = b.mean - a.mean, share = b.count / count;
  a.mean += apart * share;
  a.squares += b.squares + apart * apart * a.count * share;
  a.count = count;
}

/// Computes the moments of every result and passes them to f(result, moments).
template <int kWidth, typename F>
struct MomentsOf {
  struct Acc {
    Moments of[kWidth];
  };
  Channels channels;
  In x;
  F f;
  TRAINYARD_DEVICE Acc zero() const { return {}; }
  TRAINYARD_DEVICE void add(Acc& acc, int64_t result, int64_t begin, int64_t end,
                            int64_t step) const {
    // Sums are relative to a short piece's first value, so that large means cost no precision.
    constexpr int64_t kPiece = 64;
    const In from = x + channels.first(result);
    for (int64_t j = begin; j < end;) {
      const Values<kWidth> origin = load<kWidth>(from, channels.value(j));
      Values<kWidth> sum = {}, squares = {};
      const int64_t last = j + kPiece * step < end ? j + kPiece * step : end;
      float count = 0;
      for (; j < last; j += step) {
        const Values<kWidth> v = load<kWidth>(from, channels.value(j));
        for (int k = 0; k < kWidth; ++k) {
          const float apart = v.v[k] - origin.v[k];
          sum.v[k] += apart;
          squares.v[k] += apart * apart;
        }
        count += 1;
      }
      for (int k = 0; k < kWidth; ++k) {
        const float mean = sum.v[k] / count, rest = squares.v[k] - sum.v[k] * mean;
        join(acc.of[k], {count, origin.v[k] + mean, rest < 0 ? 0.0f : rest});
      }
    }
  }
  TRAINYARD_DEVICE void merge(Acc& acc, const Acc& other) const {
    for (int k = 0; k < kWidth; ++k) join(acc.of[k], other.of[k]);
  }
  TRAINYARD_DEVICE void finish(int64_t result, const Acc& acc) const {
    for (int k = 0; k < kWidth; ++k) f(result * kWidth + k, acc.of[k]);
  }
};

/// The statistics and parameters of a normalization. `group` adjacent results share statistics, 1
/// in batch normalization; scale and shift belong to the channel.
struct Norm {
  const float *mean, *inv_std, *scale, *b;
  Divisor group, channels;
  TRAINYARD_DEVICE int64_t statistic(int64_t result) const { return group.quotient(result); }
  TRAINYARD_DEVICE float xhat(int64_t result, float x) const {
    const int64_t s = statistic(result);
    return (x - mean[s]) * inv_std[s];
  }
  TRAINYARD_DEVICE float y(int64_t result, float x) const {
    const int64_t s = statistic(result), c = channels.remainder(result);
    return Fold(mean[s], inv_std[s], scale[c], b[c])(x);
  }
};

/// dy, masked where max(0, .) was 0. `y` is its output, or nullptr to recompute it from x.
struct Masked {
  bool relu;
  In dy, y;
  TRAINYARD_DEVICE float gradient(const Norm& norm, int64_t result, float x, float slope,
                                  float out) const {
    if (!relu) return slope;
    return math::Relu::df(y ? out : norm.y(result, x), slope);
  }
};

/// Computes sum g and sum g xhat of every result and passes them to f(result, sums).
template <int kWidth, typename F>
struct GradientSums {
  struct Acc {
    Two of[kWidth];
  };
  Channels channels;
  Norm norm;
  Masked masked;
  In x;
  F f;
  TRAINYARD_DEVICE Acc zero() const { return {}; }
  TRAINYARD_DEVICE void add(Acc& acc, int64_t result, int64_t begin, int64_t end,
                            int64_t step) const {
    const int64_t first = channels.first(result);
    Acc sum = acc;
    for (int64_t j = begin; j < end; j += step) {
      const int64_t at = first + channels.value(j);
      const Values<kWidth> v = load<kWidth>(x, at), slope = load<kWidth>(masked.dy, at);
      const Values<kWidth> out = masked.y ? load<kWidth>(masked.y, at) : v;
      for (int k = 0; k < kWidth; ++k) {
        const int64_t r = result * kWidth + k;
        const float g = masked.gradient(norm, r, v.v[k], slope.v[k], out.v[k]);
        sum.of[k].gradients += g;
        sum.of[k].products += g * norm.xhat(r, v.v[k]);
      }
    }
    acc = sum;
  }
  TRAINYARD_DEVICE void merge(Acc& acc, const Acc& other) const {
    for (int k = 0; k < kWidth; ++k) {
      acc.of[k].gradients += other.of[k].gradients;
      acc.of[k].products += other.of[k].products;
    }
  }
  TRAINYARD_DEVICE void finish(int64_t result, const Acc& acc) const {
    for (int k = 0; k < kWidth; ++k) f(result * kWidth + k, acc.of[k]);
  }
};

/// Maps an element, in memory order, to its result.
struct ResultOf {
  bool spread;     // adjacent elements belong to adjacent results: channels-last
  bool per_image;  // each image has its own results
  Divisor pixels, channels, image;
  ResultOf(const ImageDims& d, const ImageStrides& s, bool of_each_image)
      : spread(s.c == 1),
        per_image(of_each_image),
        pixels(d.pixels()),
        channels(d.C),
        image(d.C * d.pixels()) {}
  TRAINYARD_HD int64_t operator()(int64_t i) const {
    if (!spread) {
      const int64_t result = pixels.quotient(i);
      return per_image ? result : channels.remainder(result);
    }
    const int64_t c = channels.remainder(i);
    return per_image ? image.quotient(i) * channels.value + c : c;
  }
  bool takes_fours() const { return (spread ? channels.value : pixels.value) % 4 == 0; }
};

// y may be x: each thread reads its elements before it writes them.
TRAINYARD_KERNEL void normalize(int64_t count, bool fours, ResultOf result_of, Norm norm, In x,
                                In residual, bool relu, Out y) {
  if (!fours) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
      float v = norm.y(result_of(i), x[i]);
      if (residual) v += residual[i];
      y.set(i, relu ? math::Relu::f(v) : v);
    }
    return;
  }
  for (int64_t i = 4 * thread_index(); i < count; i += 4 * thread_count()) {
    Four v = load4(x, i), r = {};
    if (residual) r = load4(residual, i);
    const int64_t first = result_of(i);
    for (int k = 0; k < 4; ++k) {
      float e = norm.y(result_of.spread ? first + k : first, v.v[k]);
      if (residual) e += r.v[k];
      v.v[k] = relu ? math::Relu::f(e) : e;
    }
    store4(y, i, v);
  }
}

/// dx = inv_std (g scale - mean of g scale - xhat (mean of g scale xhat)), by statistic. dx and g
/// may be omitted, and either may alias an operand that is read.
struct DataGradient {
  ResultOf result_of;
  Norm norm;
  Masked masked;
  const Two* means;
  In x;
  Out dx, g;
  TRAINYARD_DEVICE float of(int64_t result, float v, float gradient) const {
    const int64_t s = norm.statistic(result);
    const float scaled = gradient * norm.scale[norm.channels.remainder(result)];
    return norm.inv_std[s] *
           (scaled - means[s].gradients - norm.xhat(result, v) * means[s].products);
  }
};

TRAINYARD_KERNEL void differentiate(int64_t count, bool fours, DataGradient d) {
  const Masked& m = d.masked;
  if (!fours) {
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
      const int64_t result = d.result_of(i);
      const float v = d.x[i], out = m.y ? m.y[i] : 0.0f;
      const float gradient = m.gradient(d.norm, result, v, m.dy[i], out);
      if (d.dx) d.dx.set(i, d.of(result, v, gradient));
      if (d.g) d.g.set(i, gradient);
    }
    return;
  }
  for (int64_t i = 4 * thread_index(); i < count; i += 4 * thread_count()) {
    const Four v = load4(d.x, i), slope = load4(m.dy, i);
    Four out = {}, dx, g;
    if (m.y) out = load4(m.y, i);
    const int64_t first = d.result_of(i);
    for (int k = 0; k < 4; ++k) {
      const int64_t result = d.result_of.spread ? first + k : first;
      g.v[k] = m.gradient(d.norm, result, v.v[k], slope.v[k], out.v[k]);
      dx.v[k] = d.dx ? d.of(result, v.v[k], g.v[k]) : 0.0f;
    }
    if (d.dx) store4(d.dx, i, dx);
    if (d.g) store4(d.g, i, g);
  }
}

/// Returns 4 if channels can be processed in groups of four, else 1.
int width_of(const ImageDims& d, const ImageStrides& s, std::initializer_list<In> operands) {
  bool four = s.c == 1 && d.C % 4 == 0;
  for (const In& x : operands) four &= takes_four(x);
  return four ? 4 : 1;
}
ReductionPlan plan_channels(const ImageStrides& s, int64_t results, int64_t terms, int width) {
  return plan_reduction(results / width, terms, s.c == 1 ? Adjacent::kResults : Adjacent::kTerms);
}
/// Workspace of a reduction to `results` results of `terms` values each, enough for either width.
template <template <int, typename> typename Source, typename F>
int64_t partial_bytes(const ImageDims& d, const ImageStrides& s, int64_t results, int64_t terms) {
  int64_t bytes = reduction_workspace_bytes<Source<1, F>>(plan_channels(s, results, terms, 1));
  if (width_of(d, s, {}) == 4) {
    bytes = std::max(bytes,
                     reduction_workspace_bytes<Source<4, F>>(plan_channels(s, results, terms, 4)));
  }
  return bytes;
}

/// The number of results, and of values of each result.
struct Results {
  int64_t count, terms;
};
Results batch_results(const BatchNormDims& d) { return {d.x.C, d.values_per_channel()}; }

template <typename F>
void take_moments(const ImageDims& d, const ImageStrides& s, const Results& results, In x,
                  const F& f, Run run) {
  const int width = width_of(d, s, {x});
  const ReductionPlan plan = plan_channels(s, results.count, results.terms, width);
  const Channels channels(d, s, width);
  if (width == 4) {
    reduce(plan, MomentsOf<4, F>{channels, x, f}, run.workspace, run.stream);
  } else {
    reduce(plan, MomentsOf<1, F>{channels, x, f}, run.workspace, run.stream);
  }
}

/// The operands of the gradient sums.
struct Slopes {
  Norm norm;
  Masked masked;
  In x;
};

template <typename F>
void sum_gradients(const ImageDims& d, const ImageStrides& s, const Results& results,
                   const Slopes& of, const F& f, Run run) {
  const int width = width_of(d, s, {of.x, of.masked.dy, of.masked.y});
  const ReductionPlan plan = plan_channels(s, results.count, results.terms, width);
  const Channels channels(d, s, width);
  if (width == 4) {
    reduce(plan, GradientSums<4, F>{channels, of.norm, of.masked, of.x, f}, run.workspace,
           run.stream);
  } else {
    reduce(plan, GradientSums<1, F>{channels, of.norm, of.masked, of.x, f}, run.workspace,
           run.stream);
  }
}

/// The operands of a normalization.
struct Normalized {
  In x, residual;
  bool relu;
  Out y;
};
void run_normalize(const ImageDims& d, const ResultOf& result_of, const Norm& norm,
                   const Normalized& o, CUstream_st* stream) {
  const bool fours =
      result_of.takes_fours() && takes_four(o.x) && takes_four(o.residual) && takes_four(o.y);
  const int64_t count = d.elements();
  launch(grid_for(fours ? count / 4 : count), stream, normalize, count, fours, result_of, norm, o.x,
         o.residual, o.relu, o.y);
}

void run_differentiate(const ImageDims& dims, const DataGradient& d, CUstream_st* stream) {
  if (!d.dx && !d.g) return;
  const bool fours = d.result_of.takes_fours() && takes_four(d.x) && takes_four(d.masked.dy) &&
                     takes_four(d.masked.y) && takes_four(d.dx) && takes_four(d.g);
  const int64_t count = dims.elements();
  launch(grid_for(fours ? count / 4 : count), stream, differentiate, count, fours, d);
}

// Batch normalization.

TRAINYARD_KERNEL void invert_std(int64_t count, float epsilon, const float* variance,
                                 float* inv_std) {
  for (int64_t c = thread_index(); c < count; c += thread_count()) {
    inv_std[c] = 1.0f / std::sqrt(variance[c] + epsilon);
  }
}

Norm batch_norm_of(const BatchNormDims& d, const float* mean, const float* inv_std,
                   const float* scale, const float* b) {
  return {mean, inv_std, scale, b, Divisor(1), Divisor(d.x.C)};
}

int64_t aligned(int64_t bytes) { return round_up(bytes, kCudaAlignment); }

// Group normalization: channels of an image first, then the channels of a group.

struct KeepMoments {
  Moments* moments;
  TRAINYARD_DEVICE void operator()(int64_t result, const Moments& m) const { moments[result] = m; }
};

struct GroupStatistics {
  using Acc = Moments;
  int64_t channels;  // channels of one group
  float epsilon;
  const Moments* moments;
  float *mean, *inv_std;
  TRAINYARD_DEVICE Moments zero() const { return {}; }
  TRAINYARD_DEVICE void add(Moments& acc, int64_t group, int64_t begin, int64_t end,
                            int64_t step) const {
    for (int64_t c = begin; c < end; c += step) join(acc, moments[group * channels + c]);
  }
  TRAINYARD_DEVICE void merge(Moments& acc, const Moments& other) const { join(acc, other); }
  TRAINYARD_DEVICE void finish(int64_t group, const Moments& acc) const {
    mean[group] = acc.mean;
    inv_std[group] = 1.0f / std::sqrt(acc.squares / acc.count + epsilon);
  }
};

struct KeepSums {
  Two* sums;
  TRAINYARD_DEVICE void operator()(int64_t result, const Two& t) const { sums[result] = t; }
};

struct AddedTwo {
  using Acc = Two;
  TRAINYARD_DEVICE Two zero() const { return {}; }
  TRAINYARD_DEVICE void merge(Two& acc, const Two& other) const {
    acc.gradients += other.gradients;
    acc.products += other.products;
  }
};

/// The means over a group of each channel's sums times the channel's scale.
struct GroupMeans : AddedTwo {
  int64_t channels;   // channels of one group
  Divisor per_image;  // channels in an image
  const float* scale;
  float share;  // 1 / the number of values in a group
  const Two* of_channel;
  Two* means;
  TRAINYARD_DEVICE void add(Two& acc, int64_t group, int64_t begin, int64_t end,
                            int64_t step) const {
    for (int64_t c = begin; c < end; c += step) {
      const int64_t result = group * channels + c;
      const float by = scale[per_image.remainder(result)];
      merge(acc, {by * of_channel[result].gradients, by * of_channel[result].products});
    }
  }
  TRAINYARD_DEVICE void finish(int64_t group, const Two& acc) const {
    means[group] = {share * acc.gradients, share * acc.products};
  }
};

/// Adds up a channel's sums over all images.
struct ParameterGradients : AddedTwo {
  int64_t channels;
  const Two* of_channel;
  float *dscale, *db;
  TRAINYARD_DEVICE void add(Two& acc, int64_t c, int64_t begin, int64_t end, int64_t step) const {
    for (int64_t n = begin; n < end; n += step) merge(acc, of_channel[n * channels + c]);
  }
  TRAINYARD_DEVICE void finish(int64_t c, const Two& acc) const {
    if (dscale != nullptr) dscale[c] = acc.products;
    if (db != nullptr) db[c] = acc.gradients;
  }
};

struct GroupPlans {
  int64_t results;  // channels of all images
  ReductionPlan groups, parameters;
  explicit GroupPlans(const GroupNormDims& d)
      : results(d.x.N * d.x.C),
        groups(plan_reduction(d.x.N * d.groups, d.channels(), Adjacent::kTerms)),
        parameters(plan_reduction(d.x.C, d.x.N, Adjacent::kResults)) {}
};

/// Workspace: an entry per channel and image, two values per group, then that of reductions.
struct GroupWorkspace {
  int64_t groups_at, partial_at;
  GroupWorkspace(const GroupNormDims& d, int64_t result_bytes)
      : groups_at(aligned(d.x.N * d.x.C * result_bytes)),
        partial_at(groups_at + aligned(d.x.N * d.groups * static_cast<int64_t>(sizeof(Two)))) {}
};

Norm group_norm_of(const GroupNormDims& d, const float* mean, const float* inv_std,
                   const float* scale, const float* b) {
  return {mean, inv_std, scale, b, Divisor(d.channels()), Divisor(d.x.C)};
}

}  // namespace

int64_t batch_norm_workspace_bytes(const BatchNormDims& d, const ImageStrides& s) {
  const int64_t C = d.x.C, M = d.values_per_channel();
  return aligned(C * static_cast<int64_t>(sizeof(Two))) +
         std::max({partial_bytes<MomentsOf, BatchStatistics>(d.x, s, C, M),
                   partial_bytes<GradientSums, BatchSums>(d.x, s, C, M),
                   supports_channel_eights(d, s, {}, {}) ? channel_eights_workspace_bytes(d) : 0});
}

void batch_norm_training(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormTrainingOperands<Views>& o, Run run) {
  check(d, o);
  Contract("batch_norm_training").workspace(run);
  const BatchStatistics statistics{static_cast<float>(d.epsilon),
                                   static_cast<float>(d.momentum),
                                   o.running_mean,
                                   o.running_var,
                                   o.mean,
                                   o.inv_std};
  if (supports_channel_eights(d, s, {o.x}, {})) {
    channel_eights_statistics(d, o.x, statistics, run);
  } else {
    take_moments(d.x, s, batch_results(d), o.x, statistics, run);
  }
  batch_norm_replay(d, s,
                    {.x = o.x,
                     .scale = o.scale,
                     .b = o.b,
                     .mean = o.mean,
                     .inv_std = o.inv_std,
                     .residual = o.residual,
                     .relu = o.relu,
                     .y = o.y},
                    run);
}

void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s,
                          const BatchNormInferenceOperands<Views>& o, Run run) {
  check(d, o);
  auto* inv_std = workspace_of<float>("batch_norm_inference", run);
  launch(grid_for(d.x.C), run.stream, invert_std, d.x.C, static_cast<float>(d.epsilon),
         o.running_var, inv_std);
  batch_norm_replay(d, s,
                    {.x = o.x,
                     .scale = o.scale,
                     .b = o.b,
                     .mean = o.running_mean,
                     .inv_std = inv_std,
                     .residual = o.residual,
                     .relu = o.relu,
                     .y = o.y},
                    run);
}

void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s,
                       const BatchNormReplayOperands<Views>& o, Run run) {
  check(d, o);
  if (supports_channel_eights(d, s, {o.x, o.residual, o.y}, {o.mean, o.inv_std, o.scale, o.b})) {
    channel_eights_normalize(d, o, run);
    return;
  }
  run_normalize(d.x, ResultOf(d.x, s, false), batch_norm_of(d, o.mean, o.inv_std, o.scale, o.b),
                {o.x, o.residual, o.relu, o.y}, run.stream);
}

void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormGradOperands<Views>& o, Run run, In skip) {
  check(d, o);
  auto* means = workspace_of<Two>("batch_norm_backward", run);
  const Run partial{run.stream, static_cast<char*>(run.workspace) +
                                    aligned(d.x.C * static_cast<int64_t>(sizeof(Two)))};
  const BatchSums sums{o.scale, 1 / static_cast<float>(d.values_per_channel()), means, o.dscale,
                       o.db};
  if (supports_channel_eights(d, s, {o.x, o.dy, skip, o.y, o.dx, o.g},
                              {o.mean, o.inv_std, o.scale, o.b})) {
    return channel_eights_backward(d, o, skip, sums, partial);
  }
  In dy = o.dy;
  if (skip) {
    const Out sum = o.g ? o.g : o.dx;
    Box<3> box;
    box.append(d.x.elements(), {1, 1, 1});
    arithmetic<math::Add>(box, dy, skip, sum, run.stream);
    dy = sum;
  }
  const Norm norm = batch_norm_of(d, o.mean, o.inv_std, o.scale, o.b);
  const Masked masked{o.relu, dy, o.y};
  sum_gradients(d.x, s, batch_results(d), {norm, masked, o.x}, sums, partial);
  run_differentiate(d.x, {ResultOf(d.x, s, false), norm, masked, means, o.x, o.dx, o.g},
                    run.stream);
}

int64_t group_norm_workspace_bytes(const GroupNormDims& d, const ImageStrides& s) {
  const GroupPlans plans(d);
  const int64_t partial =
      std::max({partial_bytes<MomentsOf, KeepMoments>(d.x, s, plans.results, d.x.pixels()),
                partial_bytes<GradientSums, KeepSums>(d.x, s, plans.results, d.x.pixels()),
                reduction_workspace_bytes<GroupStatistics>(plans.groups),
                reduction_workspace_bytes<GroupMeans>(plans.groups),
                reduction_workspace_bytes<ParameterGradients>(plans.parameters)});
  return GroupWorkspace(d, sizeof(Moments)).partial_at + partial;
}

void group_norm_forward(const GroupNormDims& d, const ImageStrides& s,
                        const GroupNormOperands<Views>& o, Run run) {
  check(d, o);
  const GroupPlans plans(d);
  const GroupWorkspace layout(d, sizeof(Moments));
  auto* bytes = workspace_of<char>("group_norm_forward", run);
  auto* moments = reinterpret_cast<Moments*>(bytes);
  auto* statistics = reinterpret_cast<float*>(bytes + layout.groups_at);
  const Run partial{run.stream, bytes + layout.partial_at};
  float* const mean = o.mean != nullptr ? o.mean : statistics;
  float* const inv_std = o.inv_std != nullptr ? o.inv_std : statistics + d.x.N * d.groups;
  take_moments(d.x, s, {plans.results, d.x.pixels()}, o.x, KeepMoments{moments}, partial);
  reduce(plans.groups,
         GroupStatistics{d.channels(), static_cast<float>(d.epsilon), moments, mean, inv_std},
         partial.workspace, run.stream);
  run_normalize(d.x, ResultOf(d.x, s, true), group_norm_of(d, mean, inv_std, o.scale, o.b),
                {o.x, {}, false, o.y}, run.stream);
}

void group_norm_backward(const GroupNormDims& d, const ImageStrides& s,
                         const GroupNormGradOperands<Views>& o, Run run) {
  check(d, o);
  const GroupPlans plans(d);
  const GroupWorkspace layout(d, sizeof(Moments));
  auto* bytes = workspace_of<char>("group_norm_backward", run);
  auto* of_channel = reinterpret_cast<Two*>(bytes);
  auto* means = reinterpret_cast<Two*>(bytes + layout.groups_at);
  const Run partial{run.stream, bytes + layout.partial_at};
  const Norm norm = group_norm_of(d, o.mean, o.inv_std, o.scale, nullptr);
  const Masked masked{false, o.dy, {}};
  sum_gradients(d.x, s, {plans.results, d.x.pixels()}, {norm, masked, o.x}, KeepSums{of_channel},
                partial);
  if (o.dscale != nullptr || o.db != nullptr) {
    reduce(plans.parameters, ParameterGradients{{}, d.x.C, of_channel, o.dscale, o.db},
           partial.workspace, run.stream);
  }
  if (!o.dx) return;
  reduce(plans.groups,
         GroupMeans{{},
                    d.channels(),
                    Divisor(d.x.C),
                    o.scale,
                    1 / static_cast<float>(d.values()),
                    of_channel,
                    means},
         partial.workspace, run.stream);
  run_differentiate(d.x, {ResultOf(d.x, s, true), norm, masked, means, o.x, o.dx, {}}, run.stream);
}

}  // namespace trainyard::kernels::cuda
