// src/runtime/reference/images.cc: convolution, pooling and batch normalization on the reference
// backend.
#include "src/runtime/common/image_kernels.h"
#include "src/runtime/reference/kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

std::unique_ptr<Kernel> make_conv(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const ConvDims d = conv_dims(n, x, input_info(g, n, 1));
  const ImageStrides xs = image_strides(x), ys = image_strides(output_info(g, n, 0));
  const bool bias = has_input(n, 2);
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::conv_forward<T>(d, xs, a.in<T>(0), a.in<T>(1), bias ? a.in<T>(2) : nullptr, ys,
                                 a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_conv_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const ConvDims d = conv_dims(n, x, input_info(g, n, 1));
  const ImageStrides xs = image_strides(x), ys = image_strides(input_info(g, n, 2));
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      if (a.out<T>(0) != nullptr) {
        reference::conv_backward_data<T>(d, ys, a.in<T>(2), a.in<T>(1), xs, a.out<T>(0));
      }
      reference::conv_backward_weights<T>(d, xs, a.in<T>(0), ys, a.in<T>(2), a.out<T>(1),
                                          a.out<T>(2));
    });
  });
}

std::unique_ptr<Kernel> make_conv_transpose(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const ConvDims d =
      conv_transpose_dims(n.attributes, x.type.shape, input_info(g, n, 1).type.shape);
  const ImageStrides xs = image_strides(x), ys = image_strides(output_info(g, n, 0));
  const bool bias = has_input(n, 2);
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::conv_transpose_forward<T>(d, xs, a.in<T>(0), a.in<T>(1),
                                           bias ? a.in<T>(2) : nullptr, ys, a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_conv_transpose_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const ConvDims d =
      conv_transpose_dims(n.attributes, x.type.shape, input_info(g, n, 1).type.shape);
  const ImageStrides xs = image_strides(x), ys = image_strides(input_info(g, n, 2));
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      if (a.out<T>(0) != nullptr) {
        reference::conv_transpose_backward_data<T>(d, ys, a.in<T>(2), a.in<T>(1), xs, a.out<T>(0));
      }
      reference::conv_transpose_backward_weights<T>(d, xs, a.in<T>(0), ys, a.in<T>(2), a.out<T>(1),
                                                    a.out<T>(2));
    });
  });
}

/// Returns the bytes to store the masked gradient, if no output stores it.
int64_t masked_bytes(const BatchNormDims& d, const ImageStrides&, int64_t mask_bytes) {
  return d.x.elements() * mask_bytes;
}

}  // namespace

std::span<const ReferenceEntry> reference_image_kernels() {
  using C = ReferenceContext;
  static constexpr ReferenceEntry kEntries[] = {
      {"Conv", make_conv},
      {"ConvGrad", make_conv_grad},
      {"ConvTranspose", make_conv_transpose},
      {"ConvTransposeGrad", make_conv_transpose_grad},
      {"BatchNormalization", make_batch_norm<false, C>},
      {"BatchNormalizationGrad", make_batch_norm_grad<false, C, masked_bytes>},
      {"BatchNormalizationRelu", make_batch_norm<true, C>},
      {"BatchNormalizationReluGrad", make_batch_norm_grad<true, C, masked_bytes>},
      {"BatchNormalizationReplay", make_batch_norm_replay<C>},
      {"GroupNormalization", make_group_norm<C>},
      {"InstanceNormalization", make_group_norm<C>},
      {"GroupNormalizationGrad", make_group_norm_grad<C>},
  };
  return kEntries;
}

}  // namespace trainyard
