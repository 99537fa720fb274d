#include "src/runtime/common/update_kernels.h"
#include "src/runtime/reference/kernels.h"

namespace trainyard {
namespace {

std::unique_ptr<Kernel> make_muon(ReferenceContext&, const Graph& g, const Node& n) {
  const kernels::MuonParams p = muon_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel(
        [p](const KernelArgs& a) {
          kernels::reference::muon(p, a.in<T>(1), a.in<float>(2), a.mut<T>(0), a.mut<T>(1),
                                   static_cast<T*>(a.workspace));
        },
        kernels::reference::muon_workspace_elements(p) * static_cast<int64_t>(sizeof(T)));
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_update_kernels() {
  return update_kernels<ReferenceContext>();
}

std::span<const ReferenceEntry> reference_muon_kernels() {
  static constexpr ReferenceEntry kEntries[] = {{"MuonUpdate", make_muon}};
  return kEntries;
}

}  // namespace trainyard
