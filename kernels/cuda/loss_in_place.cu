// The loss of rows of logits, which are replaced by their gradients, for parts of the rows.
// Contract: kernels/softmax_xent.h.
//
// Access   a warp or a block processes a row. A long row stays in shared memory between its two
//          passes, if a block can have so much: a read and a write, 8 B an element, 4 B in 16 bits.
//          Otherwise the second pass reads it again, from a cache if it is short.
// Time     bytes / 4.8 TB/s on an H200: [16384, 50257] in 16 bits in 0.7 ms.
#include "kernels/cuda/class_target.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/running_softmax.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels::cuda {
namespace {

/// The operands of a launch.
struct LogitsRows {
  int64_t rows, classes;
  int64_t pitch;  // elements from one row to the next
  Out z;
  const int32_t* labels;
  const float* dloss;
  const double* weight;  // W
  float* row_loss;
};

/// A row of logits that are replaced by their gradients.
template <typename Threads>
class LogitsRow {
 public:
  /// Must be called before any thread replaces elements of the row. `by_weight` is dloss / W.
  TRAINYARD_DEVICE LogitsRow(const ClassTarget& t, const In& z, int32_t label, bool has_weight,
                             float by_weight)
      : t_(t),
        label_(label),
        counts_(label_counts(label, t.ignored)),
        has_gradient_(counts_ && has_weight),
        by_weight_(by_weight) {
    of_label_ = counts_ ? z[label] : 0.0f;
  }
  /// Takes the elements of each thread.
  TRAINYARD_DEVICE void reduce(const RunningSoftmax& s) {
    max_ = Threads::reduce(s.max, Max());
    const float sum = Threads::reduce(s.sum_below(max_), Sum());
    log_sum_ = math::log(sum);
    by_sum_ = 1.0f / sum;
    c_ = counts_ ? t_.kept * t_.weight(label_) : 0.0f;
    of_all_ = c_ + t_.share * t_.weight_sum;
  }
  /// Returns the gradient of element i, which has the value z, and adds to the loss.
  TRAINYARD_DEVICE float gradient(int64_t i, float z) {
    const float shifted = z - max_;
    const float w = t_.share == 0 ? 0.0f : t_.weight(i);
    if (w != 0) smooth_ += w * (shifted - log_sum_);  // avoids 0 * infinity
    const float target = (i == label_ ? c_ : 0.0f) + t_.share * w;
    const float d = of_all_ * (math::exp(shifted) * by_sum_) - target;
    return has_gradient_ ? by_weight_ * d : 0.0f;
  }
  TRAINYARD_DEVICE void write_loss(float* loss) {
    const float smooth = Threads::reduce(smooth_, Sum());
    if (Threads::lane() != 0) return;
    const float of_class = c_ == 0 ? 0.0f : c_ * (of_label_ - max_ - log_sum_);
    *loss = counts_ ? t_.entropy - of_class - t_.share * smooth : 0.0f;
  }

 private:
  const ClassTarget& t_;
  int32_t label_;
  bool counts_, has_gradient_;
  float by_weight_, of_label_;
  float max_ = 0, log_sum_ = 0, by_sum_ = 0, c_ = 0, of_all_ = 0;
  float smooth_ = 0;  // sum of w log p
};

TRAINYARD_DEVICE float loss_by_weight(const float* dloss, double weight) {
  return weight > 0 ? static_cast<float>(static_cast<double>(*dloss) / weight) : 0.0f;
}

// Replaces logits by their gradients. A row is read beyond its end, up to a multiple of kStep; the
// additional elements are ignored. The elements between `classes` and `pitch` become 0.
template <bool kBlock, int kStep>
TRAINYARD_KERNEL void xent_rows_in_place(LogitsRows o, ClassTarget t) {
  using Threads = RowThreads<kBlock>;
  const float by_weight = loss_by_weight(o.dloss, *o.weight);
  for (int64_t row = Threads::first(); row < o.rows; row += Threads::step()) {
    const Out z_row = o.z + row * o.pitch;
    LogitsRow<Threads> of_row(t, z_row, o.labels[row], *o.weight > 0, by_weight);
    RunningSoftmax s;
    Threads::template for_packs<kStep>(o.classes, [&](int64_t i) {
      const Pack<kStep> v = load<kStep>(z_row, i);
      for (int k = 0; k < kStep; ++k) {
        if (i + k < o.classes) s.add(v.v[k]);
      }
    });
    of_row.reduce(s);
    Threads::template for_packs<kStep>(o.pitch, [&](int64_t i) {
      Pack<kStep> v = load<kStep>(z_row, i);
      for (int k = 0; k < kStep; ++k) {
        v.v[k] = i + k < o.classes ? of_row.gradient(i + k, v.v[k]) : 0.0f;
      }
      store<kStep>(z_row, i, v);
    });
    of_row.write_loss(o.row_loss + row);
  }
}

// The same, with a block for a row that is read once: it stays in shared memory, where each thread
// finds the elements again that it has put there. The second read of a short row hits a cache.
constexpr int kKeptThreads = 512, kKeptLoads = 4;  // packs that a thread loads together
// No GPU gives a block more than the larger limit.
constexpr int64_t kKeptRowBytesMin = int64_t{16} << 10, kKeptRowBytesMax = int64_t{1} << 20;
template <Stored kStored>
TRAINYARD_KERNEL_OF(kKeptThreads, 1)
void xent_kept_rows(LogitsRows o, ClassTarget t) {
  TRAINYARD_DYNAMIC_SHARED(Eight<kStored>, kept);
  using Threads = RowThreads<true>;
  const auto packs = static_cast<int32_t>(o.pitch / 8), threads = static_cast<int32_t>(blockDim.x);
  const auto first = static_cast<int32_t>(threadIdx.x);
  const float by_weight = loss_by_weight(o.dloss, *o.weight);
  for (int64_t row = Threads::first(); row < o.rows; row += Threads::step()) {
    const Out z_row = o.z + row * o.pitch;
    LogitsRow<Threads> of_row(t, z_row, o.labels[row], *o.weight > 0, by_weight);
    RunningSoftmax s;
    for (Packs p{first, packs, threads}; p.at < packs; p.at += kKeptLoads * threads) {
      Eight<kStored> e[kKeptLoads];
      TRAINYARD_UNROLL
      for (int u = 0; u < kKeptLoads; ++u) e[u] = load8<kStored>(z_row, p.nth(u));
      TRAINYARD_UNROLL
      for (int u = 0; u < kKeptLoads; ++u) {
        if (!p.has(u)) continue;
        kept[p.nth(u)] = e[u];
        const int64_t i = int64_t{8} * p.nth(u);
        for (int k = 0; k < 8; ++k) {
          if (i + k < o.classes) s.add(e[u][k]);
        }
      }
    }
    of_row.reduce(s);
    for (int32_t p = first; p < packs; p += threads) {
      const Eight<kStored> e = kept[p];
      float v[8];
      for (int k = 0; k < 8; ++k) {
        const int64_t i = int64_t{8} * p + k;
        v[k] = i < o.classes ? of_row.gradient(i, e[k]) : 0.0f;
      }
      store8<kStored>(z_row, p, v);
    }
    of_row.write_loss(o.row_loss + row);
  }
}

/// Returns whether the kernel can have so much dynamic shared memory on this device.
template <typename... Parameters>
bool may_have_shared(void (*kernel)(Parameters...), int bytes) {
#ifdef __CUDACC__
  const auto limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (cudaFuncSetAttribute(kernel, limit, bytes) == cudaSuccess) return true;
  (void)cudaGetLastError();
  return false;
#else
  return emulator::raise_shared_limit(reinterpret_cast<const void*>(kernel), bytes);
#endif
}

/// Launches the kernel that keeps rows in shared memory; false if a block cannot have so much.
bool launch_kept(const LogitsRows& o, const ClassTarget& t, CUstream_st* stream) {
  bool is_launched = false;
  with_one_format({o.z}, [&](auto stored) {
    const auto kernel = xent_kept_rows<stored.value>;
    const auto shared = static_cast<int>(o.pitch * element_bytes(o.z.format));
    if (!may_have_shared(kernel, shared)) return;
    launch({std::min(o.rows, kBlocksMax), kKeptThreads, shared}, stream, kernel, o, t);
    is_launched = true;
  });
  return is_launched;
}

}  // namespace

int64_t softmax_xent_rows_workspace_bytes(const SoftmaxXentParams& p) {
  return static_cast<int64_t>(sizeof(double)) + p.rows * static_cast<int64_t>(sizeof(float));
}

void softmax_xent_rows_begin(const SoftmaxXentParams& p, const float* weights, const int32_t* label,
                             Run run) {
  check("softmax_xent_rows_begin", p).given("label", label);
  weigh_labels(p.rows, target_of(p, weights), label,
               workspace_of<double>("softmax_xent_rows_begin", run), run.stream);
}

void softmax_xent_rows(const SoftmaxXentParams& p, const float* weights, const SoftmaxXentRows& o,
                       Run run) {
  check("softmax_xent_rows", p)
      .holds(o.first >= 0 && o.count >= 1 && o.first + o.count <= p.rows, "count",
             "goes beyond the rows")
      .holds(o.row >= p.classes && o.row % 4 == 0, "row", "is not a multiple of 4 with all classes")
      .aligned("z", o.z.data, kCudaAlignment)
      .given("label", o.label)
      .given("dloss", o.dloss);
  auto* const weight = workspace_of<double>("softmax_xent_rows", run);
  const LogitsRows rows{
      o.count,           p.classes, o.row,  o.z,
      o.label + o.first, o.dloss,   weight, reinterpret_cast<float*>(weight + 1) + o.first};
  const ClassTarget t = target_of(p, weights);
  // The kernel and the number of threads per row do not depend on the part, so that sums always
  // have the same order.
  const int64_t row_bytes = o.row * element_bytes(o.z.format);
  const bool may_keep = row_bytes >= kKeptRowBytesMin && row_bytes <= kKeptRowBytesMax;
  if (may_keep && o.row % 8 == 0 && launch_kept(rows, t, run.stream)) return;
  with_rows(p.rows, p.classes, /*fours=*/true, [&](auto block, auto step, const Grid& all) {
    const Grid grid{std::min(all.blocks, o.count)};
    launch(grid, run.stream, xent_rows_in_place<block.value, step.value>, rows, t);
  });
}

void softmax_xent_rows_end(const SoftmaxXentParams& p, const float* weights, const int32_t* label,
                           float* loss, Run run) {
  check("softmax_xent_rows_end", p).given("label", label).given("loss", loss);
  const auto* const weight = workspace_of<double>("softmax_xent_rows_end", run);
  const auto* const row_loss = reinterpret_cast<const float*>(weight + 1);
  mean_of_rows(p.rows, target_of(p, weights), row_loss, label, loss, run.stream);
}

}  // namespace trainyard::kernels::cuda
