// Copies, casts, physical orders, and dropout.
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/layout.h"
#include "src/runtime/cuda/copy.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/op_params.h"

namespace trainyard::cuda {
namespace {

using kernels::ImageDims;

/// From the order of an image's rows to that of its channels, or back.
std::unique_ptr<Kernel> make_transposed(const Device& device, const Graph& g, const Node& n,
                                        ImageDims d, bool to_channels_last) {
  const auto transpose =
      to_channels_last ? kernels::cuda::nchw_to_nhwc : kernels::cuda::nhwc_to_nchw;
  return make_kernel([o = Operands(g, n), d, transpose, stream = device.stream()](
                         const KernelArgs& a) { transpose(d, o.in(a, 0), o.out(a, 0), stream); });
}

std::unique_ptr<Kernel> make_reorder(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& y = output_info(g, n, 0);
  return make_transposed(device, g, n, image_dims(y.type.shape), y.layout == Layout::kChannelsLast);
}

std::unique_ptr<Kernel> make_cast(const Device& device, const Graph& g, const Node& n) {
  if (output_info(g, n, 0).type.dtype != DType::kI32) return make_copy(device, g, n);
  return make_kernel([o = Operands(g, n), count = input_info(g, n, 0).type.shape.elements(),
                      stream = device.stream()](const KernelArgs& a) {
    kernels::cuda::to_index(count, o.in(a, 0), a.out<int32_t>(0), stream);
  });
}

// An image whose two orders are the same bytes needs no transposition.
bool is_transposed(const TensorInfo& t) {
  if (t.type.shape.rank() != 4 || t.layout != Layout::kChannelsLast) return false;
  const ImageDims d = image_dims(t.type.shape);
  return d.C > 1 && d.pixels() > 1;
}

// Flatten reads an image in logical order, its gradient writes one; the rest is a copy.
std::unique_ptr<Kernel> make_flatten(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  if (!is_transposed(x)) return make_copy(device, g, n);
  return make_transposed(device, g, n, image_dims(x.type.shape), false);
}

std::unique_ptr<Kernel> make_flatten_grad(const Device& device, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  if (!is_transposed(dx)) return make_copy(device, g, n);
  return make_transposed(device, g, n, image_dims(dx.type.shape), true);
}

// Positions of a channels-last image lie as those of a sequence do.
std::unique_ptr<Kernel> make_image_to_sequence(const Device& device, const Graph& g,
                                               const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  if (x.layout == Layout::kChannelsLast) return make_copy(device, g, n);
  return make_transposed(device, g, n, image_dims(x.type.shape), true);
}

std::unique_ptr<Kernel> make_image_to_sequence_grad(const Device& device, const Graph& g,
                                                    const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  if (dx.layout == Layout::kChannelsLast) return make_copy(device, g, n);
  return make_transposed(device, g, n, image_dims(dx.type.shape), false);
}

std::unique_ptr<Kernel> make_dropout(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([o = Operands(g, n), p = dropout_params(g, n),
                      stream = device.stream()](const KernelArgs& a) {
    kernels::cuda::dropout(p, a.in<int64_t>(1), o.in(a, 0), o.out(a, 0), stream);
  });
}

}  // namespace

std::span<const CudaEntry> elementwise_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"Reorder", make_reorder},
      {"Cast", make_cast},
      {"Flatten", make_flatten},
      {"FlattenGrad", make_flatten_grad},
      {"Reshape", make_flatten},  // row-major always: a copy
      {"ReshapeGrad", make_flatten_grad},
      {"ImageToSequence", make_image_to_sequence},
      {"ImageToSequenceGrad", make_image_to_sequence_grad},
      {"Dropout", make_dropout},
      {"DropoutGrad", make_dropout},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
