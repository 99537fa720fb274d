#include "kernels/embedding.h"
#include "kernels/layout.h"
#include "src/runtime/half_kernel.h"
#include "src/runtime/op_params.h"
#include "src/runtime/reference_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

std::unique_ptr<Kernel> make_reorder(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  const ImageDims d = image_dims(y.type.shape);
  return with_float_type(y.type.dtype, [&]<typename T>(T) -> std::unique_ptr<Kernel> {
    if (y.layout == Layout::kChannelsLast) {
      return make_kernel(
          [d](const KernelArgs& a) { reference::nchw_to_nhwc(d, a.in<T>(0), a.out<T>(0)); });
    }
    return make_kernel(
        [d](const KernelArgs& a) { reference::nhwc_to_nchw(d, a.in<T>(0), a.out<T>(0)); });
  });
}

std::unique_ptr<Kernel> make_cast(ReferenceContext& context, const Graph& g, const Node& n) {
  const TensorType& x = input_info(g, n, 0).type;
  if (output_info(g, n, 0).type.dtype == DType::kI32) {
    return with_float_type(x.dtype, [count = x.shape.elements()]<typename T>(T) {
      return make_kernel([count](const KernelArgs& a) {
        reference::to_index(count, a.in<T>(0), a.out<int32_t>(0));
      });
    });
  }
  return make_stored_copy(conversion_of(context), input_info(g, n, 0), output_info(g, n, 0));
}

}  // namespace

std::span<const ReferenceEntry> reference_elementwise_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
      {"Reorder", make_reorder},
      {"Cast", make_cast},
  };
  return kEntries;
}

}  // namespace trainyard
