// Pooling and normalisation of images. Convolution: convolutions.cc.
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/image_kernels.h"

namespace trainyard::cuda {
namespace {

using namespace kernels;  // NOLINT: contracts
namespace gpu = kernels::cuda;

std::unique_ptr<Kernel> make_max_pool(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const PoolDims d = pool_dims(n, x.type.shape);
  const ImageStrides xs = image_strides(x), ys = image_strides(output_info(g, n, 0));
  const bool keeps = has_output(n, 1);
  return make_kernel([=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
    gpu::max_pool_forward(d, xs, operands.in(a, 0), ys, operands.out(a, 0),
                          keeps ? a.out<uint8_t>(1) : nullptr, stream);
  });
}

std::unique_ptr<Kernel> make_max_pool_grad(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  const PoolDims d = pool_dims(n, dx.type.shape);
  const ImageStrides xs = image_strides(dx), ys = image_strides(input_info(g, n, 0));
  const bool kept = has_input(n, 2);
  return make_kernel(
      [=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
        gpu::max_pool_backward(d, xs, operands.in(a, 1), kept ? a.in<uint8_t>(2) : nullptr, ys,
                               operands.in(a, 0), operands.out(a, 0), a.workspace, stream);
      },
      kept ? 0 : gpu::max_pool_backward_workspace_bytes(d));
}

std::unique_ptr<Kernel> make_average_pool(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const PoolDims d = pool_dims(n, x.type.shape);
  const ImageStrides xs = image_strides(x), ys = image_strides(output_info(g, n, 0));
  return make_kernel([=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
    gpu::average_pool_forward(d, xs, operands.in(a, 0), ys, operands.out(a, 0), stream);
  });
}

std::unique_ptr<Kernel> make_average_pool_grad(const Device& device, const Graph& g,
                                               const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  const PoolDims d = pool_dims(n, dx.type.shape);
  const ImageStrides xs = image_strides(dx), ys = image_strides(input_info(g, n, 0));
  return make_kernel([=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
    gpu::average_pool_backward(d, ys, operands.in(a, 0), xs, operands.out(a, 0), stream);
  });
}

std::unique_ptr<Kernel> make_global_pool(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const ImageDims d = image_dims(x.type.shape);
  const ImageStrides xs = image_strides(x);
  return make_kernel(
      [=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
        gpu::global_average_pool_forward(d, xs, operands.in(a, 0), operands.out(a, 0), a.workspace,
                                         stream);
      },
      gpu::global_average_pool_workspace_bytes(d, xs));
}

std::unique_ptr<Kernel> make_global_pool_grad(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  const ImageDims d = image_dims(dx.type.shape);
  const ImageStrides xs = image_strides(dx);
  return make_kernel([=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
    gpu::global_average_pool_backward(d, operands.in(a, 0), xs, operands.out(a, 0), stream);
  });
}

/// BatchNormalization and BatchNormalizationRelu: the latter may have a residual, input 5.
template <bool kRelu>
std::unique_ptr<Kernel> make_batch_norm(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const int64_t workspace = gpu::batch_norm_workspace_bytes(d, s);
  if (n.attributes.get_int("training_mode", 0) == 0) {
    return make_kernel(
        [=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
          gpu::batch_norm_inference(d, s, operands.in(a, 0), a.in<float>(1), a.in<float>(2),
                                    a.in<float>(3), a.in<float>(4), operands.in(a, 5), kRelu,
                                    operands.out(a, 0), a.workspace, stream);
        },
        workspace);
  }
  TRAINYARD_CHECK(has_output(n, 1) && has_output(n, 2),
                  n.name + ": training writes saved_mean and saved_inv_std");
  return make_kernel(
      [=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
        gpu::batch_norm_training(d, s, operands.in(a, 0), a.in<float>(1), a.in<float>(2),
                                 a.mut<float>(0), a.mut<float>(1), operands.in(a, 5), kRelu,
                                 operands.out(a, 0), a.out<float>(1), a.out<float>(2), a.workspace,
                                 stream);
      },
      workspace);
}

/// Inputs are x, scale, saved mean and inv_std, dy; with Relu b or y behind them and maybe skip,
/// outputs g.
template <bool kRelu>
std::unique_ptr<Kernel> make_batch_norm_grad(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  return make_kernel(
      [=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
        gpu::batch_norm_backward(d, s, operands.in(a, 0), operands.in(a, 4), operands.in(a, 7),
                                 a.in<float>(1), a.in<float>(2), a.in<float>(3), kRelu,
                                 kRelu ? a.in<float>(5) : nullptr, operands.in(a, 6),
                                 operands.out(a, 0), a.out<float>(1), a.out<float>(2),
                                 operands.out(a, 3), a.workspace, stream);
      },
      gpu::batch_norm_workspace_bytes(d, s));
}

std::unique_ptr<Kernel> make_batch_norm_replay(const Device& device, const Graph& g,
                                               const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const bool relu = n.attributes.get_int("relu", 0) == 1;
  return make_kernel([=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
    gpu::batch_norm_replay(d, s, operands.in(a, 0), a.in<float>(1), a.in<float>(2), a.in<float>(3),
                           a.in<float>(4), operands.in(a, 5), relu, operands.out(a, 0), stream);
  });
}

std::unique_ptr<Kernel> make_group_norm(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const GroupNormDims d = group_norm_dims(n, x, group_count(n, x));
  const ImageStrides s = group_norm_strides(x, d);
  return make_kernel(
      [=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
        gpu::group_norm_forward(d, s, operands.in(a, 0), a.in<float>(1), a.in<float>(2),
                                operands.out(a, 0), a.out<float>(1), a.out<float>(2), a.workspace,
                                stream);
      },
      gpu::group_norm_workspace_bytes(d, s));
}

std::unique_ptr<Kernel> make_group_norm_grad(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const GroupNormDims d = group_norm_dims(n, x, input_info(g, n, 2).type.shape[1]);
  const ImageStrides s = group_norm_strides(x, d);
  return make_kernel(
      [=, operands = Operands(g, n), stream = device.stream()](const KernelArgs& a) {
        gpu::group_norm_backward(d, s, operands.in(a, 0), a.in<float>(1), a.in<float>(2),
                                 a.in<float>(3), operands.in(a, 4), operands.out(a, 0),
                                 a.out<float>(1), a.out<float>(2), a.workspace, stream);
      },
      gpu::group_norm_workspace_bytes(d, s));
}

}  // namespace

std::span<const CudaEntry> image_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"MaxPool", make_max_pool},
      {"MaxPoolGrad", make_max_pool_grad},
      {"AveragePool", make_average_pool},
      {"AveragePoolGrad", make_average_pool_grad},
      {"GlobalAveragePool", make_global_pool},
      {"GlobalAveragePoolGrad", make_global_pool_grad},
      {"BatchNormalization", make_batch_norm<false>},
      {"BatchNormalizationGrad", make_batch_norm_grad<false>},
      {"BatchNormalizationRelu", make_batch_norm<true>},
      {"BatchNormalizationReluGrad", make_batch_norm_grad<true>},
      {"SkipBatchNormalizationReluGrad", make_batch_norm_grad<true>},
      {"BatchNormalizationReplay", make_batch_norm_replay},
      {"GroupNormalization", make_group_norm},
      {"InstanceNormalization", make_group_norm},
      {"GroupNormalizationGrad", make_group_norm_grad},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
