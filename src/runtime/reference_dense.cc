#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/layout.h"
#include "src/runtime/half_kernel.h"
#include "src/runtime/op_params.h"
#include "src/runtime/reference_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

std::unique_ptr<Kernel> make_gemm(ReferenceContext&, const Graph& g, const Node& n) {
  const GemmDims d = gemm_dims(g, n);
  const bool has_bias = has_input(n, 2);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d, has_bias](const KernelArgs& a) {
      reference::gemm_forward(d, a.in<T>(0), a.in<T>(1), has_bias ? a.in<T>(2) : nullptr,
                              a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_gemm_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const GemmDims d = gemm_dims(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d](const KernelArgs& a) {
      reference::gemm_backward(d, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.out<T>(0), a.out<T>(1),
                               a.out<T>(2));
    });
  });
}

// Flatten reads an image in logical order, its gradient writes one; the rest is a copy.
std::unique_ptr<Kernel> make_flatten(ReferenceContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  if (x.layout == Layout::kRowMajor) {
    return make_stored_copy(conversion_of(context), x, output_info(g, n, 0));
  }
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([d = image_dims(x.type.shape)](const KernelArgs& a) {
      reference::nhwc_to_nchw(d, a.in<T>(0), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_flatten_grad(ReferenceContext& context, const Graph& g,
                                          const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  if (dx.layout == Layout::kRowMajor) {
    return make_stored_copy(conversion_of(context), input_info(g, n, 0), dx);
  }
  return with_float_type(dx.type.dtype, [&]<typename T>(T) {
    return make_kernel([d = image_dims(dx.type.shape)](const KernelArgs& a) {
      reference::nchw_to_nhwc(d, a.in<T>(0), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_dropout(ReferenceContext&, const Graph& g, const Node& n) {
  const DropoutParams p = dropout_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      reference::dropout(p, a.in<int64_t>(1), a.in<T>(0), a.out<T>(0));
    });
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_dense_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
      {"Gemm", make_gemm},
      {"GemmGrad", make_gemm_grad},
      {"Flatten", make_flatten},
      {"FlattenGrad", make_flatten_grad},
      {"Reshape", make_flatten},  // row-major always: a copy
      {"ReshapeGrad", make_flatten_grad},
      {"Dropout", make_dropout},
      {"DropoutGrad", make_dropout},
  };
  return kEntries;
}

}  // namespace trainyard
