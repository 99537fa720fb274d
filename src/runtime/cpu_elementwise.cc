#include "kernels/embedding.h"
#include "kernels/layout.h"
#include "src/runtime/cpu_kernels.h"
#include "src/runtime/half_kernel.h"
#include "src/runtime/op_params.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

std::unique_ptr<Kernel> make_reorder(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  require_f32(n, y);
  const ImageDims d = image_dims(y.type.shape);
  if (y.layout == Layout::kChannelsLast) {
    return make_kernel([d, &team = context.team](const KernelArgs& a) {
      cpu::nchw_to_nhwc(d, a.in<float>(0), a.out<float>(0), team);
    });
  }
  return make_kernel([d, &team = context.team](const KernelArgs& a) {
    cpu::nhwc_to_nchw(d, a.in<float>(0), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_cast(CpuContext& context, const Graph& g, const Node& n) {
  if (output_info(g, n, 0).type.dtype == DType::kI32) {
    require_f32(n, input_info(g, n, 0));
    const int64_t count = input_info(g, n, 0).type.shape.elements();
    return make_kernel([count, &team = context.team](const KernelArgs& a) {
      cpu::to_index(count, a.in<float>(0), a.out<int32_t>(0), team);
    });
  }
  return make_stored_copy(conversion_of(context), input_info(g, n, 0), output_info(g, n, 0));
}

}  // namespace

std::span<const CpuEntry> cpu_elementwise_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"Reorder", make_reorder},
      {"Cast", make_cast},
  };
  return kEntries;
}

}  // namespace trainyard
