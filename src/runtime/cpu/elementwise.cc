#include "src/runtime/common/elementwise_kernels.h"

#include "src/runtime/cpu/kernels.h"

namespace trainyard {

std::span<const CpuEntry> cpu_elementwise_kernels() { return elementwise_kernels<CpuContext>(); }

}  // namespace trainyard
