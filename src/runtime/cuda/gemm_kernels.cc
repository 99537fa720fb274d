#include <algorithm>
#include <array>
#include <optional>

#include "kernels/cuda/column_sum.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/cuda/matmul.h"

namespace trainyard::cuda {
namespace {

/// x [n, f], w [k, f], y and dy [n, k]: src/ops/gemm.h.
struct Sizes {
  int64_t n, f, k;
  Sizes(const Graph& graph, const Node& node) {
    const TensorType& x = input_info(graph, node, 0).type;
    const TensorType& w = input_info(graph, node, 1).type;
    TRAINYARD_CHECK(x.dtype == DType::kF32, node.name + ": the cuda backend computes in F32");
    n = x.shape[0];
    f = x.shape[1];
    k = w.shape[0];
  }
};

/// y = x w' + b, the bias added by the product itself.
class GemmKernel final : public Kernel {
 public:
  GemmKernel(const Device& device, const Sizes& s, bool bias)
      : bias_(bias), product_(device, {s.n, s.k, s.f, false, true, bias}) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }
  void run(const KernelArgs& args) override {
    product_.run(args.in<float>(0), args.in<float>(1), bias_ ? args.in<float>(2) : nullptr,
                 args.out<float>(0), args.workspace);
  }

 private:
  bool bias_;
  Matmul product_;
};

/// dx = dy w, dw = dy' x, db = the sum of dy's rows; what is not wanted is left out. One after
/// another on one stream, so they share one workspace.
class GemmGradKernel final : public Kernel {
 public:
  GemmGradKernel(const Device& device, const Sizes& s, const Node& node) : device_(device), s_(s) {
    if (has_output(node, 0)) dx_.emplace(device, MatmulDims{s.n, s.f, s.k, false, false, false});
    if (has_output(node, 1)) dw_.emplace(device, MatmulDims{s.k, s.f, s.n, true, false, false});
  }
  int64_t workspace_bytes() const override {
    return std::max(dx_ ? dx_->workspace_bytes() : 0, dw_ ? dw_->workspace_bytes() : 0);
  }
  void run(const KernelArgs& args) override {
    const auto* x = args.in<float>(0);
    const auto* w = args.in<float>(1);
    const auto* dy = args.in<float>(2);
    if (dx_) dx_->run(dy, w, nullptr, args.out<float>(0), args.workspace);
    if (dw_) dw_->run(dy, x, nullptr, args.out<float>(1), args.workspace);
    if (auto* db = args.out<float>(2); db != nullptr) {
      kernels::cuda::column_sum(s_.n, s_.k, dy, db, device_.stream());
      check(cudaPeekAtLastError(), "launching a bias gradient");
    }
  }

 private:
  const Device& device_;
  Sizes s_;
  std::optional<Matmul> dx_, dw_;
};

std::unique_ptr<Kernel> make_gemm(const Device& device, const Graph& graph, const Node& node) {
  return std::make_unique<GemmKernel>(device, Sizes(graph, node), has_input(node, 2));
}
std::unique_ptr<Kernel> make_gemm_grad(const Device& device, const Graph& graph, const Node& node) {
  return std::make_unique<GemmGradKernel>(device, Sizes(graph, node), node);
}

}  // namespace

std::span<const CudaEntry> gemm_kernels() {
  static constexpr std::array<CudaEntry, 2> kTable = {{
      {"Gemm", make_gemm},
      {"GemmGrad", make_gemm_grad},
  }};
  return kTable;
}

}  // namespace trainyard::cuda
