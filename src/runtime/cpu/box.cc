// src/runtime/cpu/box.cc: activations, movement, resampling, arithmetic and reductions.
#include "src/runtime/common/activation_kernels.h"
#include "src/runtime/common/box_kernels.h"
#include "src/runtime/cpu/kernels.h"

namespace trainyard {

std::span<const CpuEntry> cpu_activation_kernels() { return activation_kernels<CpuContext>(); }

std::span<const CpuEntry> cpu_box_kernels() { return box_kernels<CpuContext>(); }

}  // namespace trainyard
