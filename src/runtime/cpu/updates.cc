#include "src/runtime/common/update_kernels.h"
#include "src/runtime/cpu/kernels.h"

namespace trainyard {
namespace {

class MuonKernel final : public Kernel {
 public:
  MuonKernel(CpuContext& context, const Graph& g, const Node& n)
      : muon_(muon_params(g, n), context.team) {}
  int64_t workspace_bytes() const override { return muon_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    muon_.run(a.in<float>(1), a.in<float>(2), a.mut<float>(0), a.mut<float>(1), a.workspace);
  }

 private:
  kernels::cpu::Muon muon_;
};

}  // namespace

std::span<const CpuEntry> cpu_update_kernels() {
  return update_kernels<CpuContext, kernels::cpu::gradient_norm_workspace_bytes,
                        kernels::cpu::gradient_squares_workspace_bytes,
                        kernels::cpu::adafactor_workspace_bytes>();
}

std::span<const CpuEntry> cpu_muon_kernels() {
  static constexpr CpuEntry kEntries[] = {{"MuonUpdate", make<MuonKernel>}};
  return kEntries;
}

}  // namespace trainyard
