// src/runtime/reference/box.cc: activations, movement, resampling, arithmetic and reductions.
#include "src/runtime/common/activation_kernels.h"
#include "src/runtime/common/box_kernels.h"
#include "src/runtime/reference/kernels.h"

namespace trainyard {

std::span<const ReferenceEntry> reference_activation_kernels() {
  return activation_kernels<ReferenceContext>();
}

std::span<const ReferenceEntry> reference_box_kernels() { return box_kernels<ReferenceContext>(); }

}  // namespace trainyard
