#include "src/runtime/cuda/fused_attention.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "src/runtime/cuda/graph_builder.h"
#include "src/runtime/cuda/timing.h"

namespace trainyard::cuda {
namespace {

using AttentionGraphBuilder = dnn::GraphBuilder<4>;
using Sizes = AttentionGraphBuilder::Sizes;
using kernels::AttentionDims;
using kernels::cuda::Format;
using Tensor = cudnnBackendDescriptor_t;  // owned by the builder's parts

Sizes transposed(Sizes s) {
  std::swap(s[2], s[3]);
  return s;
}

/// Sizes and strides of the tensors of a problem.
struct Layout {
  Sizes q, kv, pairs, rows;
  Sizes q_stride, kv_stride, y_stride, pair_stride, row_stride;
  Layout(const AttentionDims& d, int64_t y_row)
      : q{d.N, d.H, d.Tq, d.D},
        kv{d.N, d.H, d.Tk, d.D},
        pairs{d.N, d.H, d.Tq, d.Tk},
        rows{d.N, d.H, d.Tq, 1},
        q_stride{d.Tq * d.q_row, d.D, d.q_row, 1},
        kv_stride{d.Tk * d.kv_row, d.D, d.kv_row, 1},
        y_stride{d.Tq * y_row, d.D, y_row, 1},
        pair_stride{d.H * d.Tq * d.Tk, d.Tq * d.Tk, d.Tk, 1},
        row_stride{d.H * d.Tq, d.Tq, 1, 1} {}
};

/// Replaces scores whose key comes after their query by the lowest float.
Tensor masked(AttentionGraphBuilder& g, const Layout& at, Tensor scores) {
  const Tensor query = g.virtual_tensor(at.pairs, CUDNN_DATA_INT32);
  const Tensor key = g.virtual_tensor(at.pairs, CUDNN_DATA_INT32);
  const Tensor takes_part = g.virtual_tensor(at.pairs, CUDNN_DATA_BOOLEAN);
  const Tensor chosen = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, nullptr, query, CUDNN_DATA_FLOAT, 2);
  g.pointwise(CUDNN_POINTWISE_GEN_INDEX, scores, nullptr, nullptr, key, CUDNN_DATA_FLOAT, 3);
  g.pointwise(CUDNN_POINTWISE_CMP_GE, query, key, nullptr, takes_part, CUDNN_DATA_BOOLEAN);
  g.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scores, g.number(AttentionGraph::kLowest), takes_part,
              chosen);
  return chosen;
}

void add_forward(AttentionGraphBuilder& g, const AttentionProblem& p, const Layout& at) {
  using enum AttentionGraph::Name;
  const cudnnDataType_t half = dnn::data_type(p.format);
  const Tensor q = g.tensor(kQuery, at.q, at.q_stride, half);
  const Tensor k = g.tensor(kKey, transposed(at.kv), transposed(at.kv_stride), half);
  const Tensor v = g.tensor(kValue, at.kv, at.kv_stride, half);
  const Tensor products = g.virtual_tensor(at.pairs);
  g.matmul(q, k, products);
  Tensor scores = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_MUL, products, g.number(kScale), nullptr, scores);
  if (p.dims.causal) scores = masked(g, at, scores);
  const Tensor greatest = g.virtual_tensor(at.rows);
  g.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, greatest);
  const Tensor below = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_SUB, scores, greatest, nullptr, below);
  const Tensor exps = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_EXP, below, nullptr, nullptr, exps);
  const Tensor sum = g.virtual_tensor(at.rows);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, exps, sum);
  const Tensor log = g.virtual_tensor(at.rows);
  g.pointwise(CUDNN_POINTWISE_LOG, sum, nullptr, nullptr, log);
  g.pointwise(CUDNN_POINTWISE_ADD, greatest, log, nullptr,
              g.rows(kLogSumExp, at.rows, at.row_stride));
  const Tensor probabilities = g.virtual_tensor(at.pairs, half);
  g.pointwise(CUDNN_POINTWISE_DIV, exps, sum, nullptr, probabilities);
  g.matmul(probabilities, v, g.tensor(kResult, at.q, at.y_stride, half));
}

void add_backward(AttentionGraphBuilder& g, const AttentionProblem& p, const Layout& at) {
  using enum AttentionGraph::Name;
  const cudnnDataType_t half = dnn::data_type(p.format);
  const Tensor q = g.tensor(kQuery, at.q, at.q_stride, half);
  const Tensor k = g.tensor(kKey, transposed(at.kv), transposed(at.kv_stride), half);
  const Tensor v = g.tensor(kValue, transposed(at.kv), transposed(at.kv_stride), half);
  const Tensor y = g.tensor(kResult, at.q, at.y_stride, half);
  const Tensor dy = g.tensor(kResultGrad, at.q, at.y_stride, half);
  const Tensor lse = g.rows(kLogSumExp, at.rows, at.row_stride);
  const Tensor scale = g.number(kScale);
  // delta[i] = dy[i] . y[i]
  const Tensor dy_y = g.virtual_tensor(at.q);
  g.pointwise(CUDNN_POINTWISE_MUL, dy, y, nullptr, dy_y);
  const Tensor sums = g.virtual_tensor(at.rows);
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, dy_y, sums);
  const Tensor delta = g.rows(kDelta, at.rows, at.row_stride);
  g.pointwise(CUDNN_POINTWISE_MUL, sums, g.number(kOne), nullptr, delta);
  // p[i,j] = exp(s[i,j] - lse[i])
  const Tensor products = g.virtual_tensor(at.pairs);
  g.matmul(q, k, products);
  const Tensor scores = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_MUL, products, scale, nullptr, scores);
  Tensor logs = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_SUB, scores, lse, nullptr, logs);
  if (p.dims.causal) logs = masked(g, at, logs);
  const Tensor probabilities = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_EXP, logs, nullptr, nullptr, probabilities);
  // dv = p^T dy
  const Tensor p_t = g.virtual_tensor(transposed(at.pairs), transposed(at.pair_stride), half);
  g.reshape(probabilities, p_t);
  g.matmul(p_t, dy, g.tensor(kValueGrad, at.kv, at.kv_stride, half));
  // ds = scale p (dy v^T - delta)
  const Tensor dy_v = g.virtual_tensor(at.pairs);
  g.matmul(dy, v, dy_v);
  const Tensor less = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_SUB, dy_v, delta, nullptr, less);
  const Tensor times_p = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_MUL, less, probabilities, nullptr, times_p);
  const Tensor ds = g.virtual_tensor(at.pairs);
  g.pointwise(CUDNN_POINTWISE_MUL, times_p, scale, nullptr, ds);
  // dk = ds^T q, dq = ds k
  const Tensor ds_t = g.virtual_tensor(transposed(at.pairs), transposed(at.pair_stride), half);
  g.reshape(ds, ds_t);
  g.matmul(ds_t, q, g.tensor(kKeyGrad, at.kv, at.kv_stride, half));
  const Tensor k_rows = g.virtual_tensor(at.kv, at.kv_stride, half);
  g.reshape(k, k_rows);
  g.matmul(ds, k_rows, g.tensor(kQueryGrad, at.q, at.q_stride, half));
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kEngineOwn = 1 << 20;  // bytes of workspace that an engine may need in addition

/// The size of equal parts of `count`, of which at most `most` fit. The last part may overlap the
/// one before it and computes the same bits again.
int64_t part_size(int64_t count, int64_t most) {
  most = std::clamp(most, int64_t{1}, count);
  return ceil_div(count, ceil_div(count, most));
}
/// Calls f with the start of each part.
template <typename F>
void for_parts(int64_t count, int64_t size, const F& f) {
  for (int64_t begin = 0; begin < count; begin += size) f(std::min(begin, count - size));
}

bool is_for_dnn(const AttentionProblem& p) {
  const AttentionDims& d = p.dims;
  return p.format != Format::kF32 && d.dropout == 0 && d.D % 8 == 0 && d.group() == 1 &&
         d.window == 0 && !d.cached && !(p.backward && d.Tq == 1 && d.Tk == 1) &&
         cudnnGetVersion() >= kAttentionVersionMin;
}

/// Returns a key of the problems that share a plan; none of them has dropout, shared heads
/// or a limit of the keys other than causal. The structured bindings list all members, so a new
/// member that is missing here causes a compile error.
std::string key_of(const AttentionProblem& p, int64_t workspace_max) {
  const auto& [backward, dims, format] = p;
  const auto& [N, H, Tq, Tk, D, q_row, kv_row, scale, causal, dropout, seed, stream, first_head,
               tf32, kv_heads, window, cached] = dims;
  std::string key = "attention";
  for (const int64_t n : {int64_t{backward}, static_cast<int64_t>(format), int64_t{causal}, N, H,
                          Tq, Tk, D, q_row, kv_row, std::bit_cast<int64_t>(scale), workspace_max}) {
    key += " " + std::to_string(n);
  }
  return key;
}

/// Returns a version as in "9.18.1".
std::string version_words(size_t version) {
  return std::to_string(version / 10'000) + "." + std::to_string(version % 10'000 / 100) + "." +
         std::to_string(version % 100);
}

/// The arguments of a plan: names and addresses of tensors.
class Pack {
 public:
  void add(int64_t name, const void* data) {
    names_[count_] = name;
    data_[count_++] = data;
  }
  void run(const DnnPlan& plan, void* workspace) const {
    plan.run(std::span(names_).first(count_), std::span(data_).first(count_), workspace);
  }

 private:
  std::array<int64_t, AttentionGraph::kFirstVirtual> names_{};
  std::array<const void*, AttentionGraph::kFirstVirtual> data_{};
  size_t count_ = 0;
};

/// Returns the address of element `i` of a tensor whose elements have `size` bytes.
const void* at(const void* data, int64_t i, int64_t size) {
  return static_cast<const std::byte*>(data) + i * size;
}

}  // namespace

std::string attention_version_warning(size_t version) {
  if (version >= kAttentionVersionMin) return {};
  const std::string least = version_words(kAttentionVersionMin);
  return "cuDNN " + version_words(version) +
         " is too old for attention, whose gradients could be wrong before " + least +
         ": attention in 16 bits runs on slower kernels; install cuDNN " + least + " or later";
}

std::vector<EngineChoice> preferred_engines(const AttentionProblem& problem, int capability,
                                            size_t version) {
  constexpr int kFirst = 100, kLastOfTheFirstEngine = 103, kEnd = 120;
  if (!problem.backward || capability < kFirst || capability >= kEnd) return {};
  EngineChoice choice{capability <= kLastOfTheFirstEngine ? 5 : 17, {}};
  if (version >= 92300) {  // which names the parts of the kernel's configuration
    choice.knobs = {{CUDNN_KNOB_TYPE_TILE_M, 3},
                    {CUDNN_KNOB_TYPE_TILE_N, 2},
                    {CUDNN_KNOB_TYPE_KERNEL_CFG, 2},
                    {CUDNN_KNOB_TYPE_STREAM_K, 0},
                    {CUDNN_KNOB_TYPE_TILE_CGA_M, 0}};
  } else {
    choice.knobs = {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}};
  }
  choice.knobs.push_back({CUDNN_KNOB_TYPE_STAGES, 2});
  return {choice};
}

int64_t ds_bytes(const AttentionDims& d, int64_t sequences, int64_t heads) {
  return sequences * heads * (ceil_div(d.Tq, 128) * 128) * (ceil_div(d.Tk, 128) * 128) * 2;
}

AttentionGraph::AttentionGraph(const AttentionProblem& problem, int64_t y_row,
                               cudnnHandle_t handle) {
  AttentionGraphBuilder g(parts_, kFirstVirtual);
  const Layout layout(problem.dims, y_row);
  if (problem.backward) {
    add_backward(g, problem, layout);
  } else {
    add_forward(g, problem, layout);
  }
  graph_ = g.graph(handle);
}

std::shared_ptr<const FusedAttention> FusedAttention::find(const Device& device,
                                                           const AttentionProblem& problem,
                                                           int64_t workspace_max) {
  if (!is_for_dnn(problem)) return nullptr;
  std::weak_ptr<const void>& kept = device.shared(key_of(problem, workspace_max));
  if (auto plan = std::static_pointer_cast<const FusedAttention>(kept.lock())) return plan;
  try {
    const std::shared_ptr<const FusedAttention> made(
        new FusedAttention(device, problem, workspace_max));
    if (!made->plan_) return nullptr;
    kept = made;
    return made;
  } catch (const CudaError& e) {
    if (CUDNN_STATUS_CATEGORY(e.code()) != CUDNN_STATUS_NOT_SUPPORTED) throw;
  }
  return nullptr;
}

FusedAttention::FusedAttention(const Device& device, const AttentionProblem& problem,
                               int64_t workspace_max)
    : problem_(problem),
      sequences_(problem.dims.N),
      heads_(problem.dims.H),
      scale_(static_cast<float>(problem.dims.scale)) {
  const AttentionDims& d = problem.dims;
  for (const EngineChoice& choice :
       preferred_engines(problem, device.capability(), cudnnGetVersion())) {
    prepare(device, workspace_max, &choice);
    if (plan_) return;
  }
  if (problem.backward) {
    sequences_ = part_size(d.N, workspace_max / ds_bytes(d, 1, d.H));
    if (sequences_ == 1) heads_ = part_size(d.H, workspace_max / ds_bytes(d, 1, 1));
  }
  prepare(device, workspace_max, nullptr);
}

void FusedAttention::prepare(const Device& device, int64_t workspace_max,
                             const EngineChoice* choice) {
  AttentionProblem part = problem_;
  part.dims.N = sequences_;
  part.dims.H = heads_;
  if (problem_.backward) {
    delta_bytes_ =
        aligned(sequences_ * heads_ * part.dims.Tq * static_cast<int64_t>(sizeof(float)));
  }
  const AttentionDims& d = problem_.dims;
  const DnnArithmetic arithmetic{problem_.format, /*tf32=*/false};
  const int64_t most = workspace_max + kEngineOwn;
  const DnnPlan::Trial trial = [&](const DnnPlan& plan) {
    return device.test_once(key_of(part, workspace_max) + " " + words_of(plan.choice()),
                            [&] { return passes_trial(device, part, plan); });
  };
  graph_.emplace(part, d.H * d.D, device.dnn());
  if (choice == nullptr) {
    plan_ = DnnPlan::find(device, graph_->graph(), arithmetic, most, trial);
    return;
  }
  plan_ = DnnPlan::restore(device, graph_->graph(), arithmetic, most, *choice);
  if (plan_ && !trial(*plan_)) plan_.reset();
}

bool FusedAttention::passes_trial(const Device& device, const AttentionProblem& part,
                                  const DnnPlan& plan) {
  const AttentionDims& d = part.dims;
  const int64_t bytes =
      std::max(element_bytes(part.format) * d.N * std::max(d.Tq * d.q_row, d.Tk * d.kv_row),
               d.N * d.H * d.Tq * static_cast<int64_t>(sizeof(float)));
  return cuda::passes_trial(device, /*results_matter=*/false, [&] {
    const DeviceMemory tensors = device.allocate(bytes),
                       workspace = device.allocate(plan.workspace_bytes());
    const WaitsAtEnd waits(device);
    check(cudaMemsetAsync(tensors.get(), 0, static_cast<size_t>(bytes), device.stream()),
          "preparing the trial of attention");
    const float number = 1;
    Pack pack;
    pack.add(AttentionGraph::kScale, &number);
    if (d.causal) pack.add(AttentionGraph::kLowest, &number);
    if (part.backward) pack.add(AttentionGraph::kOne, &number);
    const int64_t last = part.backward ? AttentionGraph::kDelta : AttentionGraph::kLogSumExp;
    for (int64_t name = AttentionGraph::kQuery; name <= last; ++name) {
      pack.add(name, tensors.get());
    }
    pack.run(plan, workspace.get());
    return true;
  });
}

void FusedAttention::run(const Forward& a, void* workspace) const {
  using enum AttentionGraph::Name;
  Pack pack;
  pack.add(kScale, &scale_);
  if (problem_.dims.causal) pack.add(kLowest, &lowest_);
  pack.add(kQuery, a.q);
  pack.add(kKey, a.k);
  pack.add(kValue, a.v);
  pack.add(kResult, a.y);
  pack.add(kLogSumExp, a.log_sum_exp);
  pack.run(*plan_, workspace);
}

void FusedAttention::run(const Backward& a, void* workspace) const {
  using enum AttentionGraph::Name;
  const AttentionDims& d = problem_.dims;
  const int64_t bytes = element_bytes(problem_.format);
  for_parts(d.N, sequences_, [&](int64_t n) {
    for_parts(d.H, heads_, [&](int64_t h) {
      const int64_t q = n * d.Tq * d.q_row + h * d.D, kv = n * d.Tk * d.kv_row + h * d.D;
      const int64_t y = (n * d.Tq * d.H + h) * d.D;
      Pack pack;
      pack.add(kScale, &scale_);
      if (d.causal) pack.add(kLowest, &lowest_);
      pack.add(kOne, &one_);
      pack.add(kQuery, at(a.q, q, bytes));
      pack.add(kKey, at(a.k, kv, bytes));
      pack.add(kValue, at(a.v, kv, bytes));
      pack.add(kResult, at(a.y, y, bytes));
      pack.add(kLogSumExp, at(a.log_sum_exp, (n * d.H + h) * d.Tq, sizeof(float)));
      pack.add(kResultGrad, at(a.dy, y, bytes));
      pack.add(kQueryGrad, at(a.dq, q, bytes));
      pack.add(kKeyGrad, at(a.dk, kv, bytes));
      pack.add(kValueGrad, at(a.dv, kv, bytes));
      pack.add(kDelta, workspace);
      pack.run(*plan_, static_cast<std::byte*>(workspace) + delta_bytes_);
    });
  });
}

}  // namespace trainyard::cuda
