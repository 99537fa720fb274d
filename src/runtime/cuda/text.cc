// src/runtime/cuda/text.cc: recurrent layers and embedding bags.
#include <algorithm>
#include <optional>

#include "kernels/cuda/column_sum.h"
#include "kernels/cuda/convert.h"
#include "src/ops/tf32.h"
#include "src/runtime/common/text_kernels.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using kernels::RecurrentCell;
using kernels::RecurrentDims;
using kernels::cuda::Format;
using kernels::cuda::In;
using kernels::cuda::Out;

constexpr int64_t kFloat = sizeof(float);

/// Assigns offsets to the parts of a workspace.
class Pieces {
 public:
  int64_t add(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += aligned(bytes);
    return offset;
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
};
void* at(const KernelArgs& a, int64_t offset) {
  return static_cast<std::byte*>(a.workspace) + offset;
}

/// The time of step s of a run, and the time of the step before it, or -1.
struct Step {
  int64_t t, before;
};
Step step_of(const RecurrentDims& d, int64_t s) {
  const int64_t t = d.reverse ? d.T - 1 - s : s;
  return {t, s == 0 ? -1 : d.reverse ? t + 1 : t - 1};
}

Format format_of_input(const Graph& g, const Node& n, size_t i) {
  return format_of(input_info(g, n, i));
}

/// Returns the dimensions of one of the node's products.
MatmulDims product_of(const Node& n, int64_t rows, int64_t columns, int64_t terms, bool transpose_a,
                      bool transpose_b) {
  MatmulDims dims{rows, columns, terms, transpose_a, transpose_b};
  dims.tf32 = allows_tf32(n);
  return dims;
}

/// The product with x is computed for all time steps at once; then each time step is a product with
/// h and a kernel.
class RecurrentKernel final : public Kernel {
 public:
  RecurrentKernel(const Device& device, const Graph& g, const Node& n, RecurrentCell cell)
      : stream_(device.stream()),
        operands_(g, n),
        d_(recurrent_dims(g, n, cell)),
        bias_(has_input(n, 4)),
        factors_(format_of_input(g, n, 2)),
        input_(device, product_of(n, d_.N * d_.T, d_.gates() * d_.H, d_.F, false, true),
               format_of_input(g, n, 0), format_of_input(g, n, 1), Format::kF32) {
    const int64_t GH = d_.gates() * d_.H;
    if (d_.T > 1) {
      recurrent_.emplace(device, product_of(n, d_.N, GH, d_.H, false, true), factors_, factors_,
                         Format::kF32);
    }
    Pieces pieces;
    product_at_ = pieces.add(
        std::max(input_.workspace_bytes(), recurrent_ ? recurrent_->workspace_bytes() : 0));
    // If the gates are F32, their memory stores the sums.
    a_bytes_ = output_info(g, n, 2).is_half() ? d_.N * d_.T * GH * kFloat : 0;
    a_at_ = pieces.add(a_bytes_);
    b_at_ = pieces.add(d_.N * GH * kFloat);
    h_at_ = pieces.add(d_.N * d_.H * kFloat);
    h_narrow_at_ = pieces.add(narrows() ? d_.N * d_.H * element_bytes(factors_) : 0);
    bytes_ = pieces.bytes();
  }
  int64_t workspace_bytes() const override { return bytes_; }

  void run(const KernelArgs& a) override {
    void* const memory = at(a, product_at_);
    auto* const sums = static_cast<float*>(a_bytes_ > 0 ? at(a, a_at_) : a.outputs[2]);
    auto* const of_h = static_cast<float*>(at(a, b_at_));
    auto* const h = static_cast<float*>(at(a, h_at_));
    const Out h_narrow{narrows() ? at(a, h_narrow_at_) : nullptr, factors_};
    input_.run(operands_.in(a, 0), operands_.in(a, 1), {}, {sums}, memory);
    for (int64_t s = 0; s < d_.T; ++s) {
      const auto [t, before] = step_of(d_, s);
      const Out h_before = narrows() ? h_narrow : Out{h};
      if (s > 0) recurrent_->run(h_before, operands_.in(a, 2), {}, {of_h}, memory);
      kernels::cuda::recurrent_step_forward(d_, t, before,
                                            {.a = sums,
                                             .b = of_h,
                                             .b_ih = bias_ ? a.in<float>(3) : nullptr,
                                             .b_hh = bias_ ? a.in<float>(4) : nullptr,
                                             .y = operands_.out(a, 0),
                                             .last = s + 1 == d_.T ? operands_.out(a, 1) : Out{},
                                             .gates = operands_.out(a, 2),
                                             .saved = a.out<float>(3),
                                             .h = h,
                                             .h_narrow = h_narrow},
                                            stream_);
    }
  }

 private:
  bool narrows() const { return factors_ != Format::kF32; }

  CUstream_st* stream_;
  Operands operands_;
  RecurrentDims d_;
  bool bias_;
  Format factors_;  // format of the factors of products
  Product input_;
  std::optional<Product> recurrent_;  // per time step
  int64_t product_at_ = 0, a_at_ = 0, a_bytes_ = 0, b_at_ = 0, h_at_ = 0, h_narrow_at_ = 0;
  int64_t bytes_ = 0;
};

/// The time steps compute the gradients of both products' results; the weights' gradients then use
/// those of all time steps at once.
class RecurrentGradKernel final : public Kernel {
 public:
  RecurrentGradKernel(const Device& device, const Graph& g, const Node& n, RecurrentCell cell)
      : stream_(device.stream()),
        operands_(g, n),
        d_(recurrent_dims(g, n, cell)),
        factors_(format_of_input(g, n, 2)) {
    const int64_t GH = d_.gates() * d_.H, rows = d_.N * d_.T;
    const auto stored = [&](size_t o) { return format_of(output_info(g, n, o)); };
    int64_t product_bytes = kernels::cuda::column_sum_workspace_bytes(rows, GH);
    const auto make = [&](std::optional<Product>& product, MatmulDims dims, Format a, Format b,
                          Format c) {
      product.emplace(device, dims, a, b, c);
      product_bytes = std::max(product_bytes, product->workspace_bytes());
    };
    MatmulDims step = product_of(n, d_.N, d_.H, GH, false, false);
    step.accumulate = !lstm();
    if (d_.T > 1) make(step_, step, factors_, factors_, Format::kF32);
    if (has_output(n, 0))
      make(dx_, product_of(n, rows, d_.F, GH, false, false), factors_, format_of_input(g, n, 1),
           stored(0));
    if (has_output(n, 1))
      make(dw_ih_, product_of(n, GH, d_.F, rows, true, false), factors_, format_of_input(g, n, 0),
           stored(1));
    if (has_output(n, 2))
      make(dw_hh_, product_of(n, GH, d_.H, rows, true, false), factors_, factors_, stored(2));
    const int64_t element = element_bytes(factors_);
    Pieces pieces;
    product_at_ = pieces.add(product_bytes);
    dh_at_ = pieces.add(d_.N * d_.H * kFloat);
    dc_at_ = pieces.add(d_.N * d_.H * kFloat);
    da_at_ = pieces.add(rows * GH * element);
    db_at_ = lstm() ? da_at_ : pieces.add(rows * GH * element);
    step_at_ = pieces.add(d_.N * GH * element);
    h_before_at_ = pieces.add(rows * d_.H * element);
    sum_at_ = pieces.add(GH * kFloat);
    bytes_ = pieces.bytes();
  }
  int64_t workspace_bytes() const override { return bytes_; }

  void run(const KernelArgs& a) override {
    void* const memory = at(a, product_at_);
    const auto piece = [&](int64_t offset) { return Out{at(a, offset), factors_}; };
    const Out da = piece(da_at_), db = piece(db_at_), step = piece(step_at_);
    const Out h_before = piece(h_before_at_), dh{at(a, dh_at_)};
    for (int64_t s = d_.T - 1; s >= 0; --s) {
      const auto [t, before] = step_of(d_, s);
      kernels::cuda::recurrent_step_backward(d_, t, before, s + 1 == d_.T,
                                             {.gates = operands_.in(a, 4),
                                              .y = operands_.in(a, 3),
                                              .dy = operands_.in(a, 6),
                                              .dlast = operands_.in(a, 7),
                                              .saved = a.in<float>(5),
                                              .dh = static_cast<float*>(dh.data),
                                              .dc = static_cast<float*>(at(a, dc_at_)),
                                              .da = da,
                                              .db = lstm() ? Out{} : db,
                                              .step = step,
                                              .h_before = h_before},
                                             stream_);
      if (s > 0) step_->run(step, operands_.in(a, 2), {}, dh, memory);
    }
    if (dx_) dx_->run(da, operands_.in(a, 1), {}, operands_.out(a, 0), memory);
    if (dw_ih_) dw_ih_->run(da, operands_.in(a, 0), {}, operands_.out(a, 1), memory);
    if (dw_hh_) dw_hh_->run(db, h_before, {}, operands_.out(a, 2), memory);
    write_sum(a, da, operands_.out(a, 3));
    write_sum(a, db, operands_.out(a, 4));
  }

 private:
  bool lstm() const { return d_.cell == RecurrentCell::kLstm; }
  void write_sum(const KernelArgs& a, const In& x, const Out& out) const {
    if (!out) return;
    const int64_t GH = d_.gates() * d_.H;
    auto* const sum = static_cast<float*>(out.format != Format::kF32 ? at(a, sum_at_) : out.data);
    kernels::cuda::column_sum(d_.N * d_.T, GH, x, sum, at(a, product_at_), stream_);
    if (out.format != Format::kF32) kernels::cuda::convert(GH, {sum}, out, stream_);
  }

  CUstream_st* stream_;
  Operands operands_;
  RecurrentDims d_;
  Format factors_;                                    // format of the factors of products
  std::optional<Product> step_, dx_, dw_ih_, dw_hh_;  // step_: dh from db
  int64_t product_at_ = 0, dh_at_ = 0, dc_at_ = 0, da_at_ = 0, db_at_ = 0, step_at_ = 0,
          h_before_at_ = 0, sum_at_ = 0, bytes_ = 0;
};

template <typename K, RecurrentCell kCell>
std::unique_ptr<Kernel> make_recurrent(const Device& device, const Graph& g, const Node& n) {
  return std::make_unique<K>(device, g, n, kCell);
}

}  // namespace

std::span<const CudaEntry> text_kernels() {
  using C = const Device;
  static constexpr CudaEntry kEntries[] = {
      {"LSTM", make_recurrent<RecurrentKernel, RecurrentCell::kLstm>},
      {"LSTMGrad", make_recurrent<RecurrentGradKernel, RecurrentCell::kLstm>},
      {"GRU", make_recurrent<RecurrentKernel, RecurrentCell::kGru>},
      {"GRUGrad", make_recurrent<RecurrentGradKernel, RecurrentCell::kGru>},
      {"EmbeddingBag", make_embedding_bag<C>},
      {"EmbeddingBagGrad",
       make_embedding_bag_grad<C, kernels::cuda::embedding_bag_backward_workspace_bytes>},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
