// Convolution, pooling and batch normalisation on the reference backend.
#include "src/runtime/image_kernels.h"
#include "src/runtime/reference_kernels.h"

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

std::unique_ptr<Kernel> make_max_pool(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const PoolDims d = pool_dims(n, x.type.shape);
  const ImageStrides xs = image_strides(x), ys = image_strides(output_info(g, n, 0));
  const bool keeps = has_output(n, 1);
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::max_pool_forward<T>(d, xs, a.in<T>(0), ys, a.out<T>(0),
                                     keeps ? a.out<uint8_t>(1) : nullptr);
    });
  });
}

std::unique_ptr<Kernel> make_max_pool_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  const PoolDims d = pool_dims(n, dx.type.shape);
  const ImageStrides xs = image_strides(dx), ys = image_strides(input_info(g, n, 0));
  const bool kept = has_input(n, 2);
  return with_float_type(dx.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::max_pool_backward<T>(d, xs, a.in<T>(1), kept ? a.in<uint8_t>(2) : nullptr, ys,
                                      a.in<T>(0), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_average_pool(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const PoolDims d = pool_dims(n, x.type.shape);
  const ImageStrides xs = image_strides(x), ys = image_strides(output_info(g, n, 0));
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::average_pool_forward<T>(d, xs, a.in<T>(0), ys, a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_average_pool_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  const PoolDims d = pool_dims(n, dx.type.shape);
  const ImageStrides xs = image_strides(dx), ys = image_strides(input_info(g, n, 0));
  return with_float_type(dx.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::average_pool_backward<T>(d, ys, a.in<T>(0), xs, a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_global_pool(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const ImageDims d = image_dims(x.type.shape);
  const ImageStrides xs = image_strides(x);
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::global_average_pool_forward<T>(d, xs, a.in<T>(0), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_global_pool_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  const ImageDims d = image_dims(dx.type.shape);
  const ImageStrides xs = image_strides(dx);
  return with_float_type(dx.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::global_average_pool_backward<T>(d, a.in<T>(0), xs, a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_batch_norm(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const bool training = n.attributes.get_int("training_mode", 0) == 1;
  return with_float_type(x.type.dtype, [&]<typename T>(T) -> std::unique_ptr<Kernel> {
    if (!training) {
      return make_kernel([=](const KernelArgs& a) {
        reference::batch_norm_inference<T>(d, s, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.in<T>(3),
                                           a.in<T>(4), a.out<T>(0));
      });
    }
    TRAINYARD_CHECK(has_output(n, 1) && has_output(n, 2),
                    n.name + ": training writes saved_mean and saved_inv_std");
    return make_kernel([=](const KernelArgs& a) {
      reference::batch_norm_training<T>(d, s, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.mut<T>(0),
                                        a.mut<T>(1), a.out<T>(0), a.out<T>(1), a.out<T>(2));
    });
  });
}

std::unique_ptr<Kernel> make_batch_norm_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::batch_norm_backward<T>(d, s, a.in<T>(0), a.in<T>(4), a.in<T>(1), a.in<T>(2),
                                        a.in<T>(3), a.out<T>(0), a.out<T>(1), a.out<T>(2));
    });
  });
}

template <typename T>
const T* optional_in(const KernelArgs& a, size_t i) {
  return i < a.inputs.size() ? a.in<T>(i) : nullptr;
}

std::unique_ptr<Kernel> make_batch_norm_relu(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const int64_t count = x.type.shape.elements();
  const bool training = n.attributes.get_int("training_mode", 0) == 1;
  return with_float_type(x.type.dtype, [&]<typename T>(T) -> std::unique_ptr<Kernel> {
    if (!training) {
      return make_kernel([=](const KernelArgs& a) {
        reference::batch_norm_inference<T>(d, s, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.in<T>(3),
                                           a.in<T>(4), a.out<T>(0));
        reference::add_relu<T>(count, optional_in<T>(a, 5), a.out<T>(0));
      });
    }
    return make_kernel([=](const KernelArgs& a) {
      reference::batch_norm_training<T>(d, s, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.mut<T>(0),
                                        a.mut<T>(1), a.out<T>(0), a.out<T>(1), a.out<T>(2));
      reference::add_relu<T>(count, optional_in<T>(a, 5), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_batch_norm_relu_grad(ReferenceContext&, const Graph& g,
                                                  const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const bool needs_spare = !has_output(n, 0) && !has_output(n, 3);
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel(
        [=](const KernelArgs& a) {
          reference::batch_norm_relu_backward<T>(
              d, s, a.in<T>(0), a.in<T>(4), a.in<T>(1), a.in<T>(2), a.in<T>(3), a.in<T>(5),
              optional_in<T>(a, 6), a.out<T>(0), a.out<T>(1), a.out<T>(2), a.out<T>(3),
              static_cast<T*>(a.workspace));
        },
        needs_spare ? x.type.bytes() : 0);
  });
}

std::unique_ptr<Kernel> make_batch_norm_replay(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const bool relu = n.attributes.get_int("relu", 0) == 1;
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::batch_norm_replay<T>(d, s, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.in<T>(3),
                                      a.in<T>(4), optional_in<T>(a, 5), relu, a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_group_norm(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const GroupNormDims d = group_norm_dims(n, x, group_count(n, x));
  const ImageStrides s = group_norm_strides(x, d);
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::group_norm_forward<T>(d, s, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.out<T>(0),
                                       a.out<T>(1), a.out<T>(2));
    });
  });
}

std::unique_ptr<Kernel> make_group_norm_grad(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const GroupNormDims d = group_norm_dims(n, x, input_info(g, n, 2).type.shape[1]);
  const ImageStrides s = group_norm_strides(x, d);
  return with_float_type(x.type.dtype, [&]<typename T>(T) {
    return make_kernel([=](const KernelArgs& a) {
      reference::group_norm_backward<T>(d, s, a.in<T>(0), a.in<T>(1), a.in<T>(2), a.in<T>(3),
                                        a.in<T>(4), a.out<T>(0), a.out<T>(1), a.out<T>(2));
    });
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_image_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
      {"Conv", make_conv},
      {"ConvGrad", make_conv_grad},
      {"ConvTranspose", make_conv_transpose},
      {"ConvTransposeGrad", make_conv_transpose_grad},
      {"MaxPool", make_max_pool},
      {"MaxPoolGrad", make_max_pool_grad},
      {"AveragePool", make_average_pool},
      {"AveragePoolGrad", make_average_pool_grad},
      {"GlobalAveragePool", make_global_pool},
      {"GlobalAveragePoolGrad", make_global_pool_grad},
      {"BatchNormalization", make_batch_norm},
      {"BatchNormalizationGrad", make_batch_norm_grad},
      {"BatchNormalizationRelu", make_batch_norm_relu},
      {"BatchNormalizationReluGrad", make_batch_norm_relu_grad},
      {"BatchNormalizationReplay", make_batch_norm_replay},
      {"GroupNormalization", make_group_norm},
      {"InstanceNormalization", make_group_norm},
      {"GroupNormalizationGrad", make_group_norm_grad},
  };
  return kEntries;
}

}  // namespace trainyard
