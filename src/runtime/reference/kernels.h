// src/runtime/reference/kernels.h: the kernel tables of the reference backend, one per family file.
#pragma once

#include <span>

#include "kernels/elementwise.h"
#include "kernels/half.h"
#include "src/runtime/common/adapter.h"
#include "src/runtime/common/half_kernel.h"

namespace trainyard {

struct ReferenceContext {};  // the reference loops share no data
/// Converts between storage types, and copies within one (half_kernel.h).
struct ReferenceConversion {
  template <typename Half>
  void widen(int64_t count, const Half* x, float* y) const {
    kernels::reference::widen(count, x, y);
  }
  template <typename Half>
  void narrow(int64_t count, const float* x, Half* y) const {
    kernels::reference::narrow(count, x, y);
  }
  void copy(int64_t bytes, const std::byte* x, std::byte* y) const {
    kernels::reference::copy(bytes, x, y);
  }
  int parts_max() const { return 1; }
  template <typename F>
  void for_parts(int64_t count, const F& f) const {
    f(0, int64_t{0}, count);
  }
};
inline ReferenceConversion conversion_of(ReferenceContext&) { return {}; }

using ReferenceEntry = KernelEntry<ReferenceContext>;

/// Makes a kernel that copies input 0 to output 0, each in its stored type.
inline std::unique_ptr<Kernel> make_copy(ReferenceContext& context, const Graph& g, const Node& n) {
  return make_stored_copy(conversion_of(context), input_info(g, n, 0), output_info(g, n, 0));
}

template <typename F>
std::unique_ptr<Kernel> with_operands(ReferenceContext&, const Graph&, const Node&,
                                      const TensorInfo& t, F f) {
  return with_float_type(t.type.dtype, [&]<typename T>(T) -> std::unique_ptr<Kernel> {
    return f(HostOperands<T, kernels::reference::Run<T>>({}));
  });
}

std::span<const ReferenceEntry> reference_elementwise_kernels();
std::span<const ReferenceEntry> reference_activation_kernels();
std::span<const ReferenceEntry> reference_box_kernels();
std::span<const ReferenceEntry> reference_image_kernels();
std::span<const ReferenceEntry> reference_dense_kernels();
std::span<const ReferenceEntry> reference_sequence_kernels();
std::span<const ReferenceEntry> reference_text_kernels();
std::span<const ReferenceEntry> reference_training_kernels();
std::span<const ReferenceEntry> reference_update_kernels();
std::span<const ReferenceEntry> reference_muon_kernels();

}  // namespace trainyard
