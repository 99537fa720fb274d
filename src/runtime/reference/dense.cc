#include "kernels/gemm.h"
#include "src/runtime/common/op_params.h"
#include "src/runtime/reference/kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

std::unique_ptr<Kernel> make_gemm(ReferenceContext&, const Graph& g, const Node& n) {
  const GemmDims d = gemm_dims(g, n);
  const bool has_bias = has_input(n, 2);
  const int64_t bytes = output_info(g, n, 0).type.bytes();
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d, has_bias, bytes](const KernelArgs& a) {
      if (d.adds) begin_sum(a, bytes);
      reference::gemm_forward(d, a.in<T>(0), a.in<T>(1), has_bias ? a.in<T>(2) : nullptr,
                              a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_gemm_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const GemmDims d = gemm_dims(g, n);
  const int64_t bytes = input_info(g, n, 0).type.bytes();  // of dx
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d, bytes](const KernelArgs& a) {
      if (d.adds) begin_sum(a, bytes);
      reference::gemm_backward(d, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.out<T>(0), a.out<T>(1),
                               a.out<T>(2));
    });
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_dense_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
      {"Gemm", make_gemm},
      {"GemmGrad", make_gemm_grad},
      {"GemmAdd", make_gemm},
      {"GemmGradAdd", make_gemm_grad},
  };
  return kEntries;
}

}  // namespace trainyard
