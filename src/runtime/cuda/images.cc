// src/runtime/cuda/images.cc: pooling and normalization of images. Convolutions are in conv.cc.
#include "src/runtime/common/image_kernels.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

namespace gpu = kernels::cuda;

int64_t batch_norm_grad_bytes(const kernels::BatchNormDims& d, const kernels::ImageStrides& s,
                              int64_t /*mask_bytes*/) {
  return gpu::batch_norm_workspace_bytes(d, s);
}

/// Like BatchNormalizationReluGrad, with input 7, skip, added to dy.
std::unique_ptr<Kernel> make_skip_batch_norm_grad(const Device& device, const Graph& g,
                                                  const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  const kernels::BatchNormDims d = batch_norm_dims(n, x);
  const kernels::ImageStrides s = image_strides(x);
  return make_kernel(
      [o = StreamOperands(device, g, n), d, s](const KernelArgs& a) {
        gpu::batch_norm_backward(d, s, batch_norm_grad_operands<true>(o, a), o.run(a), o.in(a, 7));
      },
      gpu::batch_norm_workspace_bytes(d, s));
}

}  // namespace

std::span<const CudaEntry> image_kernels() {
  using C = const Device;
  static constexpr CudaEntry kEntries[] = {
      {"MaxPool", make_max_pool<C>},
      {"MaxPoolGrad", make_max_pool_grad<C, gpu::max_pool_backward_workspace_bytes>},
      {"AveragePool", make_average_pool<C>},
      {"AveragePoolGrad", make_average_pool_grad<C>},
      {"GlobalAveragePool", make_global_pool<C, gpu::global_average_pool_workspace_bytes>},
      {"GlobalAveragePoolGrad", make_global_pool_grad<C>},
      {"BatchNormalization", make_batch_norm<false, C, gpu::batch_norm_workspace_bytes>},
      {"BatchNormalizationGrad", make_batch_norm_grad<false, C, batch_norm_grad_bytes>},
      {"BatchNormalizationRelu", make_batch_norm<true, C, gpu::batch_norm_workspace_bytes>},
      {"BatchNormalizationReluGrad", make_batch_norm_grad<true, C, batch_norm_grad_bytes>},
      {"SkipBatchNormalizationReluGrad", make_skip_batch_norm_grad},
      {"BatchNormalizationReplay", make_batch_norm_replay<C>},
      {"GroupNormalization", make_group_norm<C, gpu::group_norm_workspace_bytes>},
      {"InstanceNormalization", make_group_norm<C, gpu::group_norm_workspace_bytes>},
      {"GroupNormalizationGrad", make_group_norm_grad<C, gpu::group_norm_workspace_bytes>},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
