// Gemm and its gradient: products by cuBLASLt, the bias added by the product itself.
#include <algorithm>
#include <optional>

#include "kernels/cuda/column_sum.h"
#include "src/ops/tf32.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/cuda/matmul.h"
#include "src/runtime/op_params.h"

namespace trainyard::cuda {
namespace {

using kernels::GemmDims;  // x [N, F], w [K, F], y and dy [N, K]

/// y = x w' + b
class GemmKernel final : public Kernel {
 public:
  GemmKernel(const Device& device, const Graph& g, const Node& n)
      : operands_(g, n), bias_(has_input(n, 2)), product_(make_product(device, g, n)) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    product_.run(operands_.in(a, 0), operands_.in(a, 1), bias_ ? a.in<float>(2) : nullptr,
                 operands_.out(a, 0), a.workspace);
  }

 private:
  static Product make_product(const Device& device, const Graph& g, const Node& n) {
    const GemmDims d = gemm_dims(g, n);
    MatmulDims dims{d.N, d.K, d.F, false, true, has_input(n, 2)};
    dims.tf32 = allows_tf32(n);
    return {device, dims, format_of(input_info(g, n, 0)), format_of(input_info(g, n, 1)),
            format_of(output_info(g, n, 0))};
  }

  Operands operands_;
  bool bias_;
  Product product_;
};

/// dx = dy w, dw = dy' x, db = the sum of dy's rows; what is not wanted is left out. One after
/// another on one stream, so they share one workspace.
class GemmGradKernel final : public Kernel {
 public:
  GemmGradKernel(const Device& device, const Graph& g, const Node& n)
      : device_(device), operands_(g, n), d_(gemm_dims(g, n)) {
    const auto x = format_of(input_info(g, n, 0)), w = format_of(input_info(g, n, 1)),
               dy = format_of(input_info(g, n, 2));
    if (has_output(n, 0)) {
      MatmulDims dims{d_.N, d_.F, d_.K};
      dims.tf32 = allows_tf32(n);
      dx_.emplace(device, dims, dy, w, format_of(output_info(g, n, 0)));
    }
    if (has_output(n, 1)) {
      MatmulDims dims{d_.K, d_.F, d_.N, true};
      dims.tf32 = allows_tf32(n);
      dw_.emplace(device, dims, dy, x, format_of(output_info(g, n, 1)));
    }
    if (has_output(n, 2)) {
      db_bytes_ = kernels::cuda::column_sum_workspace_bytes(d_.N, d_.K);
    }
  }
  int64_t workspace_bytes() const override {
    return std::max(
        {dx_ ? dx_->workspace_bytes() : 0, dw_ ? dw_->workspace_bytes() : 0, db_bytes_});
  }
  void run(const KernelArgs& a) override {
    const auto x = operands_.in(a, 0), w = operands_.in(a, 1), dy = operands_.in(a, 2);
    if (dx_) dx_->run(dy, w, nullptr, operands_.out(a, 0), a.workspace);
    if (dw_) dw_->run(dy, x, nullptr, operands_.out(a, 1), a.workspace);
    if (auto* db = a.out<float>(2); db != nullptr) {
      kernels::cuda::column_sum(d_.N, d_.K, dy, db, a.workspace, device_.stream());
    }
  }

 private:
  const Device& device_;
  Operands operands_;
  GemmDims d_;
  std::optional<Product> dx_, dw_;
  int64_t db_bytes_ = 0;
};

template <typename K>
std::unique_ptr<Kernel> make(const Device& device, const Graph& g, const Node& n) {
  return std::make_unique<K>(device, g, n);
}

}  // namespace

std::span<const CudaEntry> gemm_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"Gemm", make<GemmKernel>},
      {"GemmGrad", make<GemmGradKernel>},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
