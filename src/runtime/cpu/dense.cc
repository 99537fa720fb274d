#include "kernels/gemm.h"
#include "src/runtime/common/op_params.h"
#include "src/runtime/cpu/kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

class GemmKernel final : public Kernel {
 public:
  GemmKernel(CpuContext& context, const Graph& g, const Node& n)
      : bias_(has_input(n, 2)), gemm_(gemm_dims(g, n), bias_, context.team) {}
  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    gemm_.run(a.in<float>(0), a.in<float>(1), bias_ ? a.in<float>(2) : nullptr, a.out<float>(0),
              a.workspace);
  }

 private:
  bool bias_;
  cpu::GemmForward gemm_;
};

class GemmGradKernel final : public Kernel {
 public:
  GemmGradKernel(CpuContext& context, const Graph& g, const Node& n)
      : gemm_(gemm_dims(g, n), has_output(n, 0), has_output(n, 1), context.team) {}
  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    gemm_.run(a.in<float>(0), a.in<float>(1), a.in<float>(2), a.out<float>(0), a.out<float>(1),
              a.out<float>(2), a.workspace);
  }

 private:
  cpu::GemmBackward gemm_;
};

}  // namespace

std::span<const CpuEntry> cpu_dense_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"Gemm", make<GemmKernel>},
      {"GemmGrad", make<GemmGradKernel>},
  };
  return kEntries;
}

}  // namespace trainyard
