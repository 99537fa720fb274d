// src/runtime/cuda/head_loss.cc: the scores of a chunk are stored in the workspace and overwritten
// by their gradients, which both following products read immediately.
#include "src/runtime/cuda/head_loss.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/column_sum.h"
#include "kernels/softmax_xent.h"
#include "src/ops/tf32.h"
#include "src/runtime/common/op_params.h"
#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using kernels::GemmDims;  // x [N, F], w [K, F], scores [N, K]
using kernels::cuda::Format;
using kernels::cuda::In;
using kernels::cuda::Out;

constexpr int64_t kRowsMin = 128;  // rows of a product's tile

enum Input : size_t { kX, kW, kLabels, kSeed, kBias };
enum Output : size_t { kLoss, kDx, kDw, kDb };

/// Returns a power of two, so that batches divide into whole chunks.
int64_t chunk_rows(int64_t rows, int64_t row_bytes, int64_t bytes_max) {
  const auto fit = static_cast<uint64_t>(std::max(bytes_max / row_bytes, kRowsMin));
  return std::min(rows, static_cast<int64_t>(std::bit_floor(fit)));
}

/// The products of a chunk of `rows` rows.
struct Chunk {
  Product scores;
  std::optional<Product> dx, dw;

  Chunk(const Device& device, const Graph& g, const Node& n, GemmDims d, Format z, int64_t rows,
        bool is_first)
      : scores(device, scores_dims(n, d, rows), stored(g, n.inputs[kX]), stored(g, n.inputs[kW]),
               z) {
    MatmulDims dims;
    dims.tf32 = allows_tf32(n);
    dims.row_a = workspace_row(d.K);
    if (has_output(n, kDx)) {
      dims.m = rows;
      dims.n = d.F;
      dims.k = d.K;
      dx.emplace(device, dims, z, stored(g, n.inputs[kW]), stored(g, n.outputs[kDx]));
    }
    if (has_output(n, kDw)) {
      dims.m = d.K;
      dims.n = d.F;
      dims.k = rows;
      dims.transpose_a = true;
      dims.accumulate = !is_first;
      dw.emplace(device, dims, z, stored(g, n.inputs[kX]), stored(g, n.outputs[kDw]));
    }
  }
  int64_t workspace_bytes() const {
    return std::max(
        {scores.workspace_bytes(), dx ? dx->workspace_bytes() : 0, dw ? dw->workspace_bytes() : 0});
  }

 private:
  static Format stored(const Graph& g, TensorId id) { return format_of(g.tensor(id)); }
  static MatmulDims scores_dims(const Node& n, GemmDims d, int64_t rows) {
    MatmulDims dims{rows, d.K, d.F, false, true, has_input(n, kBias)};
    dims.tf32 = allows_tf32(n);
    dims.row_c = workspace_row(d.K);
    return dims;
  }
};

class HeadLossKernel final : public Kernel {
 public:
  HeadLossKernel(const Device& device, const Graph& g, const Node& n, int64_t scores_bytes_max)
      : device_(device), operands_(g, n), d_(gemm_dims(g, n)), p_(head_loss_params(g, n)) {
    if (!p_.weights.empty()) {
      const std::vector<float> weights(p_.weights.begin(), p_.weights.end());
      weights_ = device.upload(std::as_bytes(std::span(weights)));
    }
    z_ = narrowest({format_of(input_info(g, n, kX)), format_of(input_info(g, n, kW))});
    const int64_t row_bytes = workspace_row(d_.K) * element_bytes(z_);
    rows_ = chunk_rows(d_.N, row_bytes, scores_bytes_max);
    const int64_t chunks = (d_.N + rows_ - 1) / rows_, last = d_.N - (chunks - 1) * rows_;
    const auto prepare = [&](std::optional<Chunk>& chunk, int64_t rows, bool is_first) {
      chunk.emplace(device, g, n, d_, z_, rows, is_first);
      products_bytes_ = std::max(products_bytes_, chunk->workspace_bytes());
    };
    prepare(first_, rows_, true);
    if (chunks > 2 || (chunks == 2 && last == rows_)) prepare(next_, rows_, false);
    if (chunks > 1 && last != rows_) prepare(last_, last, false);

    scores_at_ = aligned(kernels::cuda::softmax_xent_rows_workspace_bytes(p_));
    if (has_output(n, kDb)) {
      sums_at_ = scores_at_;
      scores_at_ += aligned(chunks * d_.K * static_cast<int64_t>(sizeof(float)));
      for (const int64_t summed : {rows_, last, chunks}) {
        products_bytes_ =
            std::max(products_bytes_, kernels::cuda::column_sum_workspace_bytes(summed, d_.K));
      }
    }
    rest_at_ = scores_at_ + aligned(rows_ * row_bytes);
  }
  int64_t workspace_bytes() const override { return rest_at_ + products_bytes_; }

  void run(const KernelArgs& a) override {
    const auto* const weights = static_cast<const float*>(weights_.get());
    const auto* const labels = a.in<int32_t>(kLabels);
    CUstream_st* const stream = device_.stream();
    kernels::cuda::softmax_xent_rows_begin(p_, weights, labels, {stream, a.workspace});
    for (int64_t first = 0; first < d_.N; first += rows_) {
      const int64_t count = std::min(rows_, d_.N - first);
      run_chunk(a, first == 0 ? *first_ : count == rows_ ? *next_ : *last_, first, count);
    }
    if (auto* const db = db_of(a); db != nullptr) {
      kernels::cuda::column_sum((d_.N + rows_ - 1) / rows_, d_.K, In{at(a, sums_at_)}, db,
                                at(a, rest_at_), stream);
    }
    kernels::cuda::softmax_xent_rows_end(p_, weights, labels, a.out<float>(kLoss),
                                         {stream, a.workspace});
  }

 private:
  static void* at(const KernelArgs& a, int64_t offset) {
    return static_cast<std::byte*>(a.workspace) + offset;
  }
  static float* db_of(const KernelArgs& a) { return a.out<float>(kDb); }

  void run_chunk(const KernelArgs& a, const Chunk& chunk, int64_t first, int64_t count) const {
    const In x = operands_.in(a, kX) + first * d_.F, w = operands_.in(a, kW);
    const float* const bias = a.inputs.size() > kBias ? a.in<float>(kBias) : nullptr;
    const Out z{at(a, scores_at_), z_};
    void* const rest = at(a, rest_at_);
    chunk.scores.run(x, w, {bias}, z, rest);
    kernels::cuda::softmax_xent_rows(p_, static_cast<const float*>(weights_.get()),
                                     {.first = first,
                                      .count = count,
                                      .z = z,
                                      .row = workspace_row(d_.K),
                                      .label = a.in<int32_t>(kLabels),
                                      .dloss = a.in<float>(kSeed)},
                                     {device_.stream(), a.workspace});
    if (chunk.dx) chunk.dx->run(z, w, {}, operands_.out(a, kDx) + first * d_.F, rest);
    if (chunk.dw) chunk.dw->run(z, x, {}, operands_.out(a, kDw), rest);
    if (db_of(a) == nullptr) return;
    auto* const sums = static_cast<float*>(at(a, sums_at_)) + first / rows_ * d_.K;
    kernels::cuda::column_sum(count, d_.K, z, sums, rest, device_.stream(), workspace_row(d_.K));
  }

  const Device& device_;
  Operands operands_;
  GemmDims d_;
  kernels::SoftmaxXentParams p_;
  DeviceMemory weights_;  // class weights
  Format z_ = Format::kF32;
  int64_t rows_ = 0;  // rows per chunk
  std::optional<Chunk> first_, next_, last_;
  // Layout of the workspace: data of the loss, sums of each chunk for db, scores, the products'
  // workspace.
  int64_t sums_at_ = 0, scores_at_ = 0, rest_at_ = 0, products_bytes_ = 0;
};

std::unique_ptr<Kernel> make(const Device& device, const Graph& g, const Node& n) {
  return make_head_loss(device, g, n, scores_bytes_max(device.memory_bytes()));
}

}  // namespace

std::unique_ptr<Kernel> make_head_loss(const Device& device, const Graph& graph, const Node& node,
                                       int64_t scores_bytes_max) {
  return std::make_unique<HeadLossKernel>(device, graph, node, scores_bytes_max);
}

std::span<const CudaEntry> head_loss_kernels() {
  static constexpr CudaEntry kEntries[] = {{"GemmSoftmaxCrossEntropyLoss", make}};
  return kEntries;
}

}  // namespace trainyard::cuda
