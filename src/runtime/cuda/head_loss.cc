// src/runtime/cuda/head_loss.cc: the scores of a chunk are stored in the workspace and overwritten
// by their gradients, which both following products read immediately.
//
// Tensor cores are fed 16 bytes at a time, so cuBLASLt has only slow kernels for a product whose
// contiguous dimensions are not multiples of 8 elements, whatever the stride of the rows. Products
// of a vocabulary such as GPT-2's 50,257 therefore compute as many classes as a row of the scores
// has room for, 50,304. Weights and bias are copied into the workspace, with zeros for the classes
// that do not exist, and the loss sets their gradients to 0. The gradient of the weights has no
// room for these classes: its last rows are computed in the workspace and copied.
#include "src/runtime/cuda/head_loss.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/convert.h"
#include "kernels/movement.h"
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
constexpr int64_t kF32Bytes = sizeof(float);

enum Input : size_t { kX, kW, kLabels, kSeed, kBias };
enum Output : size_t { kLoss, kDx, kDw, kDb };

/// Returns a power of two, so that batches divide into whole chunks.
int64_t chunk_rows(int64_t rows, int64_t row_bytes, int64_t bytes_max) {
  const auto fit = static_cast<uint64_t>(std::max(bytes_max / row_bytes, kRowsMin));
  return std::min(rows, static_cast<int64_t>(std::bit_floor(fit)));
}

/// The classes as the products see them.
struct Classes {
  int64_t count;       // K
  int64_t row;         // elements from one row of the scores to the next
  bool padded;         // whether products compute `row` classes, from copies of weights and bias
  int64_t body, tail;  // rows of dw that a product writes directly, and those that are copied
  Format format;       // of the scores

  Classes(int64_t K, Format z, bool uses_tensor_cores)
      : count(K),
        row(workspace_row(K)),
        padded(uses_tensor_cores && row != K),
        body(padded ? row - kTail : K),
        tail(K - body),
        format(z) {}
  int64_t computed() const { return padded ? row : count; }

  static constexpr int64_t kTail = 64;  // padded rows are multiples of it
};

/// The products of a chunk of `rows` rows.
struct Chunk {
  Product scores;
  std::optional<Product> dx, dw, dw_tail;

  Chunk(const Device& device, const Graph& g, const Node& n, GemmDims d, const Classes& classes,
        int64_t rows, bool is_first)
      : scores(device, scores_dims(n, d, classes, rows), stored(g, n.inputs[kX]),
               format_of_weights(g, n, classes), classes.format) {
    MatmulDims dims;
    dims.tf32 = allows_tf32(n);
    dims.row_a = classes.row;
    if (has_output(n, kDx)) {
      dims.m = rows;
      dims.n = d.F;
      dims.k = classes.computed();
      dx.emplace(device, dims, classes.format, format_of_weights(g, n, classes),
                 stored(g, n.outputs[kDx]));
    }
    if (has_output(n, kDw)) {
      dims.n = d.F;
      dims.k = rows;
      dims.transpose_a = true;
      dims.accumulate = !is_first;
      const auto prepare = [&](std::optional<Product>& product, int64_t m) {
        dims.m = m;
        product.emplace(device, dims, classes.format, stored(g, n.inputs[kX]),
                        stored(g, n.outputs[kDw]));
      };
      if (classes.body > 0) prepare(dw, classes.body);
      if (classes.padded) prepare(dw_tail, Classes::kTail);
    }
  }
  int64_t workspace_bytes() const {
    int64_t bytes = scores.workspace_bytes();
    for (const std::optional<Product>* product : {&dx, &dw, &dw_tail}) {
      if (product->has_value()) bytes = std::max(bytes, (*product)->workspace_bytes());
    }
    return bytes;
  }

 private:
  static Format stored(const Graph& g, TensorId id) { return format_of(g.tensor(id)); }
  static Format format_of_weights(const Graph& g, const Node& n, const Classes& classes) {
    return classes.padded ? classes.format : stored(g, n.inputs[kW]);
  }
  static MatmulDims scores_dims(const Node& n, GemmDims d, const Classes& classes, int64_t rows) {
    MatmulDims dims{rows, classes.computed(), d.F, false, true, has_input(n, kBias)};
    dims.tf32 = allows_tf32(n);
    dims.row_c = classes.row;
    return dims;
  }
};

class HeadLossKernel final : public Kernel {
 public:
  HeadLossKernel(const Device& device, const Graph& g, const Node& n, int64_t scores_bytes_max)
      : device_(device),
        operands_(g, n),
        d_(gemm_dims(g, n)),
        p_(head_loss_params(g, n)),
        z_(narrowest({format_of(input_info(g, n, kX)), format_of(input_info(g, n, kW))})),
        classes_(d_.K, z_, z_ != Format::kF32 || (allows_tf32(n) && device.has_tf32())) {
    if (!p_.weights.empty()) {
      const std::vector<float> weights(p_.weights.begin(), p_.weights.end());
      weights_ = device.upload(std::as_bytes(std::span(weights)));
    }
    const int64_t row_bytes = classes_.row * element_bytes(z_);
    rows_ = chunk_rows(d_.N, row_bytes, scores_bytes_max);
    const int64_t chunks = (d_.N + rows_ - 1) / rows_, last = d_.N - (chunks - 1) * rows_;
    const auto prepare = [&](std::optional<Chunk>& chunk, int64_t rows, bool is_first) {
      chunk.emplace(device, g, n, d_, classes_, rows, is_first);
      products_bytes_ = std::max(products_bytes_, chunk->workspace_bytes());
    };
    prepare(first_, rows_, true);
    if (chunks > 2 || (chunks == 2 && last == rows_)) prepare(next_, rows_, false);
    if (chunks > 1 && last != rows_) prepare(last_, last, false);

    scores_at_ = aligned(kernels::cuda::softmax_xent_rows_workspace_bytes(p_));
    if (has_output(n, kDb)) {
      sums_at_ = scores_at_;
      scores_at_ += aligned(chunks * d_.K * kF32Bytes);
      for (const int64_t summed : {rows_, last, chunks}) {
        products_bytes_ =
            std::max(products_bytes_, kernels::cuda::column_sum_workspace_bytes(summed, d_.K));
      }
    }
    weights_at_ = scores_at_ + aligned(rows_ * row_bytes);
    bias_at_ = weights_at_ + (classes_.padded ? aligned(row_bytes * d_.F) : 0);
    tail_at_ = bias_at_ + (classes_.padded && has_input(n, kBias) ? aligned(row_bytes) : 0);
    const bool has_tail = classes_.padded && has_output(n, kDw);
    rest_at_ = tail_at_ + (has_tail ? aligned(Classes::kTail * d_.F * kF32Bytes) : 0);
  }
  int64_t workspace_bytes() const override { return rest_at_ + products_bytes_; }

  void run(const KernelArgs& a) override {
    const auto* const weights = static_cast<const float*>(weights_.get());
    const auto* const labels = a.in<int32_t>(kLabels);
    CUstream_st* const stream = device_.stream();
    kernels::cuda::softmax_xent_rows_begin(p_, weights, labels, {stream, a.workspace});
    const Factors factors = factors_of(a);
    for (int64_t first = 0; first < d_.N; first += rows_) {
      const int64_t count = std::min(rows_, d_.N - first);
      run_chunk(a, factors, first == 0 ? *first_ : count == rows_ ? *next_ : *last_, first, count);
    }
    if (first_->dw_tail) {
      kernels::cuda::convert(classes_.tail * d_.F, In{at(a, tail_at_)},
                             operands_.out(a, kDw) + classes_.body * d_.F, stream);
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

  /// Weights and bias as the products read them.
  struct Factors {
    In w, bias;
  };
  Factors factors_of(const KernelArgs& a) const {
    const In w = operands_.in(a, kW);
    const In bias = {a.inputs.size() > kBias ? a.in<float>(kBias) : nullptr};
    if (!classes_.padded) return {w, bias};
    return {padded(w, d_.F, at(a, weights_at_)), bias ? padded(bias, 1, at(a, bias_at_)) : bias};
  }
  /// Copies `width` elements of each class to `to`, in the format of the scores, with zeros for the
  /// classes that do not exist.
  In padded(In x, int64_t width, void* to) const {
    const Out y{to, z_};
    const int64_t count = classes_.count * width;
    kernels::cuda::convert(count, x, y, device_.stream());
    kernels::Box<2> rest;
    rest.append((classes_.row - classes_.count) * width, {0, 1});
    kernels::cuda::zero(rest, y + count, {device_.stream()});
    return y;
  }

  void run_chunk(const KernelArgs& a, const Factors& factors, const Chunk& chunk, int64_t first,
                 int64_t count) const {
    const In x = operands_.in(a, kX) + first * d_.F;
    const Out z{at(a, scores_at_), z_};
    void* const rest = at(a, rest_at_);
    chunk.scores.run(x, factors.w, factors.bias, z, rest);
    kernels::cuda::softmax_xent_rows(p_, static_cast<const float*>(weights_.get()),
                                     {.first = first,
                                      .count = count,
                                      .z = z,
                                      .row = classes_.row,
                                      .label = a.in<int32_t>(kLabels),
                                      .dloss = a.in<float>(kSeed)},
                                     {device_.stream(), a.workspace});
    if (chunk.dx) chunk.dx->run(z, factors.w, {}, operands_.out(a, kDx) + first * d_.F, rest);
    if (chunk.dw) chunk.dw->run(z, x, {}, operands_.out(a, kDw), rest);
    if (chunk.dw_tail) chunk.dw_tail->run(z + classes_.body, x, {}, Out{at(a, tail_at_)}, rest);
    if (db_of(a) == nullptr) return;
    auto* const sums = static_cast<float*>(at(a, sums_at_)) + first / rows_ * d_.K;
    kernels::cuda::column_sum(count, d_.K, z, sums, rest, device_.stream(), classes_.row);
  }

  const Device& device_;
  Operands operands_;
  GemmDims d_;
  kernels::SoftmaxXentParams p_;
  DeviceMemory weights_;  // class weights
  Format z_;              // format of the scores
  Classes classes_;
  int64_t rows_ = 0;  // rows per chunk
  std::optional<Chunk> first_, next_, last_;
  // Layout of the workspace: data of the loss, sums of each chunk for db, scores, weights, bias,
  // the tail of dw, the products' workspace.
  int64_t sums_at_ = 0, scores_at_ = 0, weights_at_ = 0, bias_at_ = 0, tail_at_ = 0, rest_at_ = 0,
          products_bytes_ = 0;
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
