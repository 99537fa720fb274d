// src/runtime/cuda/gemm.cc: Gemm and its gradient with cuBLASLt. A bias is added in the product's
// epilogue; if the library supports it, the epilogue also computes GELU, ReLU, or the bias's
// gradient. The exact form of GELU may be computed with its product by cuDNN (gelu_product.h).
#include <algorithm>
#include <optional>

#include "kernels/activation.h"
#include "kernels/cuda/column_sum.h"
#include "src/ops/gemm.h"
#include "src/ops/tf32.h"
#include "src/runtime/common/op_params.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "src/runtime/cuda/gelu_product.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using kernels::GemmDims;  // x [N, F], w [K, F], y and dy [N, K]
using kernels::cuda::Format;
using kernels::cuda::In;
using kernels::cuda::Out;

/// Calls f with the form of GELU.
template <typename F>
void with_gelu(bool is_tanh, const F& f) {
  is_tanh ? f(math::GeluTanh()) : f(math::GeluErf());
}

/// Returns the dimensions of the product x w' + b.
MatmulDims forward_dims(const Graph& g, const Node& n) {
  const GemmDims d = gemm_dims(g, n);
  MatmulDims dims{d.N, d.K, d.F, false, true, has_input(n, 2)};
  dims.tf32 = allows_tf32(n);
  return dims;
}

/// y = x w' + b
class GemmKernel final : public Kernel {
 public:
  GemmKernel(const Device& device, const Graph& g, const Node& n)
      : operands_(g, n), product_(make_product(device, g, n)) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    product_.run(operands_.in(a, 0), operands_.in(a, 1), operands_.in(a, 2), operands_.out(a, 0),
                 a.workspace);
  }

 private:
  static Product make_product(const Device& device, const Graph& g, const Node& n) {
    return {device, forward_dims(g, n), format_of(input_info(g, n, 0)),
            format_of(input_info(g, n, 1)), format_of(output_info(g, n, 0))};
  }

  Operands operands_;
  Product product_;
};

/// pre = x w' + b, y = gelu(pre), in the product's epilogue or by an engine of cuDNN if a library
/// supports it, else with a second kernel of our own. Output pre may be omitted.
class GemmGeluKernel final : public Kernel {
 public:
  GemmGeluKernel(const Device& device, const Graph& g, const Node& n)
      : device_(device), operands_(g, n), d_(gemm_dims(g, n)), is_tanh_(has_tanh_form(n)) {
    const Format x = format_of(input_info(g, n, 0)), w = format_of(input_info(g, n, 1)),
                 y = format_of(output_info(g, n, 0));
    const bool keeps = has_output(n, 1);
    pre_format_ = keeps ? format_of(output_info(g, n, 1)) : y;
    MatmulDims dims = forward_dims(g, n);
    dims.epilogue = keeps ? Epilogue::kGeluKept : Epilogue::kGelu;
    is_fused_ = is_tanh_ && pre_format_ == y && Product::is_supported(device, dims, x, w, y);
    if (!is_fused_) dims.epilogue = Epilogue::kNone;
    product_.emplace(device, dims, x, w, pre_format_);
    const bool has_bias = has_input(n, 2);
    const bool is_uniform =
        x == y && w == y && pre_format_ == y && (!has_bias || format_of(input_info(g, n, 2)) == y);
    if (is_tanh_ || !is_uniform) return;
    const GeluProblem problem{false, d_.N, d_.K, d_.F, y, dims.tf32, has_bias, keeps};
    engine_ = GeluProduct::choose(
        device, problem,
        {product_->workspace_bytes(), [&](const GeluProduct::Operands& o, void* workspace) {
           run_separately({o.a, y}, {o.b, y}, {o.bias, y}, {keeps ? o.pre : nullptr, y}, {o.c, y},
                          workspace);
         }});
  }
  int64_t workspace_bytes() const override {
    return engine_ ? engine_->workspace_bytes() : product_->workspace_bytes();
  }
  void run(const KernelArgs& a) override {
    const auto x = operands_.in(a, 0), w = operands_.in(a, 1), b = operands_.in(a, 2);
    const auto y = operands_.out(a, 0), pre = operands_.out(a, 1);
    if (engine_) {
      engine_->run({x.data, w.data, b.data, pre.data, y.data}, a.workspace);
    } else {
      run_separately(x, w, b, pre, y, a.workspace);
    }
  }

 private:
  void run_separately(In x, In w, In b, Out pre, Out y, void* workspace) const {
    const Out product = is_fused_ || !pre ? y : pre;
    product_->run(x, w, b, product, workspace, is_fused_ ? pre.data : nullptr);
    if (is_fused_) return;
    with_gelu(is_tanh_, [&](auto gelu) {
      kernels::cuda::activation_forward(d_.N * d_.K, product, y, device_.stream(), gelu);
    });
  }

  const Device& device_;
  Operands operands_;
  GemmDims d_;
  bool is_tanh_;
  Format pre_format_ = Format::kF32;
  bool is_fused_ = false;
  std::optional<Product> product_;
  std::optional<GeluProduct> engine_;
};

/// Returns the product's epilogue in a GemmRelu: ReLU with its mask, ReLU only, or none.
Epilogue relu_epilogue(const Device& device, const Graph& g, const Node& n, MatmulDims dims) {
  for (const Epilogue epilogue : {Epilogue::kReluKept, Epilogue::kRelu}) {
    if (epilogue == Epilogue::kReluKept && !has_output(n, 1)) continue;
    dims.epilogue = epilogue;
    if (Product::is_supported(device, dims, format_of(input_info(g, n, 0)),
                              format_of(input_info(g, n, 1)), format_of(output_info(g, n, 0)))) {
      return epilogue;
    }
  }
  return Epilogue::kNone;
}

/// y = relu(x w' + b), in the product's epilogue if the library supports it and it keeps NaN, else
/// with a second kernel of our own, in place. The mask is written only by the library.
class GemmReluKernel final : public Kernel {
 public:
  GemmReluKernel(const Device& device, const Graph& g, const Node& n)
      : device_(device), operands_(g, n) {
    MatmulDims dims = forward_dims(g, n);
    epilogue_ = dims.epilogue = relu_epilogue(device, g, n, dims);
    count_ = dims.m * dims.n;
    product_.emplace(device, dims, format_of(input_info(g, n, 0)), format_of(input_info(g, n, 1)),
                     format_of(output_info(g, n, 0)));
  }
  int64_t workspace_bytes() const override { return product_->workspace_bytes(); }
  void run(const KernelArgs& a) override {
    const auto y = operands_.out(a, 0);
    product_->run(operands_.in(a, 0), operands_.in(a, 1), operands_.in(a, 2), y, a.workspace,
                  epilogue_ == Epilogue::kReluKept ? operands_.out(a, 1).data : nullptr);
    if (epilogue_ == Epilogue::kNone) {
      kernels::cuda::activation_forward(count_, y, y, device_.stream(), math::Relu());
    }
  }

 private:
  const Device& device_;
  Operands operands_;
  int64_t count_;
  Epilogue epilogue_;
  std::optional<Product> product_;
};

/// Whether the node that produces a gradient's mask writes it; it was prepared by the same rule.
bool has_mask(const Device& device, const Graph& g, const Node& gradient) {
  if (!has_input(gradient, 3)) return false;
  const Node& n = g.node(g.tensor(gradient.inputs[3]).producer);
  return relu_epilogue(device, g, n, forward_dims(g, n)) == Epilogue::kReluKept;
}

/// The activation whose output is x, for a gradient fused with it.
enum class PrecedingActivation : uint8_t { kNothing, kGelu, kRelu };

/// dx = dy w, dw = dy' x, db = the sum of dy's rows; omitted outputs are not computed. The kernels
/// run one after another on one stream, so they share one workspace. If x is the output of GELU,
/// input 3 is the input of GELU; if x is the output of ReLU, input 3 is the mask; in both cases dx
/// is the gradient before the activation. Our own kernels compute what the libraries do not support
/// with the product. An F32 dy combined with 16-bit factors is narrowed once for both products.
template <PrecedingActivation kPreceding>
class GemmGradKernel final : public Kernel {
 public:
  GemmGradKernel(const Device& device, const Graph& g, const Node& n)
      : device_(device), operands_(g, n), d_(gemm_dims(g, n)), is_tanh_(has_tanh_form(n)) {
    const Format x = format_of(input_info(g, n, 0)), w = format_of(input_info(g, n, 1)),
                 stored = format_of(input_info(g, n, 2));
    if (stored == Format::kF32 && x == w && x != Format::kF32) narrowed_.emplace(d_.N, d_.K, x);
    const Format dy = narrowed_ ? x : stored;
    const int64_t dy_row = narrowed_ ? narrowed_->row() : 0;
    if (has_output(n, 0)) {
      const Format dx = format_of(output_info(g, n, 0));
      MatmulDims dims{d_.N, d_.F, d_.K};
      dims.row_a = dy_row;
      dims.tf32 = allows_tf32(n);
      const bool is_gelu = kPreceding == PrecedingActivation::kGelu;
      const bool fits_gelu = is_gelu && format_of(input_info(g, n, 3)) == dx;
      if (fits_gelu && is_tanh_) {
        dims.epilogue = Epilogue::kGeluGrad;
      } else if (kPreceding == PrecedingActivation::kRelu && has_mask(device, g, n)) {
        dims.epilogue = Epilogue::kReluGrad;
      }
      in_product_ =
          dims.epilogue != Epilogue::kNone && Product::is_supported(device, dims, dy, w, dx);
      if (!in_product_) dims.epilogue = Epilogue::kNone;
      dx_.emplace(device, dims, dy, w, dx);
      const bool is_dense = dy_row == 0 || dy_row == d_.K;
      if (fits_gelu && !is_tanh_ && dy == dx && w == dx && is_dense) choose_engine(dx, dims.tf32);
    }
    if (has_output(n, 1)) {
      const Format dw = format_of(output_info(g, n, 1));
      MatmulDims dims{d_.K, d_.F, d_.N, true};
      dims.row_a = dy_row;
      dims.tf32 = allows_tf32(n);
      dims.epilogue = Epilogue::kSumsOfA;
      // db sums dy in its stored format, not as the product would narrow or round it.
      sums_in_product_ = has_output(n, 2) && dw == Format::kF32 && !dims.tf32 &&
                         (stored != Format::kF32 || x == Format::kF32) &&
                         Product::is_supported(device, dims, dy, x, dw);
      if (!sums_in_product_) dims.epilogue = Epilogue::kNone;
      dw_.emplace(device, dims, dy, x, dw);
    }
    if (has_output(n, 2) && !sums_in_product_) {
      db_bytes_ = kernels::cuda::column_sum_workspace_bytes(d_.N, d_.K);
    }
  }
  int64_t workspace_bytes() const override {
    const int64_t dx_bytes = engine_ ? engine_->workspace_bytes()
                             : dx_   ? dx_->workspace_bytes()
                                     : 0;
    return dy_bytes() + std::max({dx_bytes, dw_ ? dw_->workspace_bytes() : 0, db_bytes_});
  }
  void run(const KernelArgs& a) override {
    const auto x = operands_.in(a, 0), w = operands_.in(a, 1), stored = operands_.in(a, 2);
    const auto dx = operands_.out(a, 0);
    void* const workspace = static_cast<std::byte*>(a.workspace) + dy_bytes();
    const auto dy =
        narrowed_ && (dx_ || dw_) ? narrowed_->run(device_, stored, a.workspace) : stored;
    if (engine_) {
      engine_->run({dy.data, w.data, nullptr, const_cast<void*>(a.inputs[3]), dx.data}, workspace);
    } else if (dx_) {
      dx_->run(dy, w, {}, dx, workspace, in_product_ ? const_cast<void*>(a.inputs[3]) : nullptr);
      if (!in_product_) run_activation(x, operands_.in(a, 3), dx);
    }
    auto* const db = a.out<float>(2);
    if (dw_) {
      dw_->run(dy, x, {}, operands_.out(a, 1), workspace, sums_in_product_ ? db : nullptr);
    }
    if (db != nullptr && !sums_in_product_) {
      kernels::cuda::column_sum(d_.N, d_.K, stored, db, workspace, device_.stream());
    }
  }

 private:
  int64_t dy_bytes() const { return narrowed_ ? narrowed_->bytes() : 0; }
  /// Applies the activation's gradient to dx, in place.
  void run_activation(In x, In pre, Out dx) const {
    const int64_t count = d_.N * d_.F;
    if constexpr (kPreceding == PrecedingActivation::kGelu) {
      with_gelu(is_tanh_, [&](auto gelu) {
        kernels::cuda::activation_backward(count, pre, dx, dx, device_.stream(), gelu);
      });
    } else if constexpr (kPreceding == PrecedingActivation::kRelu) {
      kernels::cuda::activation_backward(count, x, dx, dx, device_.stream(), math::Relu());
    }
  }
  void choose_engine(Format format, bool tf32) {
    const GeluProblem problem{true, d_.N, d_.F, d_.K, format, tf32};
    engine_ = GeluProduct::choose(
        device_, problem,
        {dx_->workspace_bytes(), [&](const GeluProduct::Operands& o, void* workspace) {
           dx_->run({o.a, format}, {o.b, format}, {}, {o.c, format}, workspace);
           run_activation({}, {o.pre, format}, {o.c, format});
         }});
  }

  const Device& device_;
  Operands operands_;
  GemmDims d_;
  bool is_tanh_;
  bool in_product_ = false;  // dx's product includes the activation's gradient
  bool sums_in_product_ = false;
  std::optional<Narrowed> narrowed_;  // the 16-bit copy of dy
  std::optional<Product> dx_, dw_;
  std::optional<GeluProduct> engine_;  // computes dx with GELU's gradient
  int64_t db_bytes_ = 0;
};

}  // namespace

std::span<const CudaEntry> gemm_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"Gemm", make_device_kernel<GemmKernel>},
      {"GemmGrad", make_device_kernel<GemmGradKernel<PrecedingActivation::kNothing>>},
      {"GemmGelu", make_device_kernel<GemmGeluKernel>},
      {"GeluGemmGrad", make_device_kernel<GemmGradKernel<PrecedingActivation::kGelu>>},
      {"GemmRelu", make_device_kernel<GemmReluKernel>},
      {"ReluGemmGrad", make_device_kernel<GemmGradKernel<PrecedingActivation::kRelu>>},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
