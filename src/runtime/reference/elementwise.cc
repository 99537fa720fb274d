#include "src/runtime/common/elementwise_kernels.h"

#include "src/runtime/reference/kernels.h"

namespace trainyard {

std::span<const ReferenceEntry> reference_elementwise_kernels() {
  return elementwise_kernels<ReferenceContext>();
}

}  // namespace trainyard
