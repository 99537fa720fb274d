// src/runtime/cuda/conv.cc: Conv, ConvTranspose and their gradients. Convolutions use cuDNN
// (conv_algorithms.h); the gradient of a bias is computed by our own reduction, fused with that of
// a ReLU that follows the convolution.
#include <algorithm>
#include <optional>

#include "kernels/cuda/bias_relu.h"
#include "kernels/reduce.h"
#include "src/ops/tf32.h"
#include "src/runtime/common/image_kernels.h"
#include "src/runtime/cuda/conv_algorithms.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using kernels::ConvDims;
using kernels::ImageDims;
using kernels::ImageStrides;

bool is_channels_last(const TensorInfo& x) { return x.layout == Layout::kChannelsLast; }

/// db is the sum of dy over all dimensions except channels.
class BiasGradient {
 public:
  BiasGradient(const Device& device, const ImageDims& d, const ImageStrides& s) : device_(device) {
    p_.kept.append(d.C, {s.c, 1});
    p_.reduced.append(d.N, {s.n});
    p_.reduced.append(d.H, {s.h});
    p_.reduced.append(d.W, {s.w});
  }
  int64_t workspace_bytes() const { return kernels::cuda::reduce_workspace_bytes(p_); }
  void run(kernels::cuda::In dy, kernels::cuda::Out db, void* workspace) const {
    kernels::cuda::reduce(p_, dy, db, {device_.stream(), workspace});
  }

 private:
  const Device& device_;
  kernels::ReduceParams p_;
};

/// Conv, or with kRelu ConvRelu.
template <bool kRelu>
class ConvKernel final : public Kernel {
 public:
  ConvKernel(const Device& device, const Graph& g, const Node& n)
      : operands_(g, n),
        bias_(has_input(n, 2)),
        forward_(device, n.name, ConvolutionPass::kForward,
                 conv_dims(n, input_info(g, n, 0), input_info(g, n, 1)),
                 is_channels_last(input_info(g, n, 0)), epilogue_of(n),
                 {format_of(input_info(g, n, 0)), format_of(input_info(g, n, 1)),
                  format_of(output_info(g, n, 0)), allows_tf32(n)}) {}
  int64_t workspace_bytes() const override { return forward_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    forward_.run(operands_.in(a, 0), operands_.in(a, 1), bias_ ? a.in<float>(2) : nullptr,
                 operands_.out(a, 0), a.workspace);
  }

 private:
  static Convolution::Epilogue epilogue_of(const Node& n) {
    using enum Convolution::Epilogue;
    if (kRelu) return kBiasRelu;
    return has_input(n, 2) ? kBias : kNone;
  }

  Operands operands_;
  bool bias_;
  Convolution forward_;
};

/// ConvTranspose is computed as the data gradient of a convolution.
class ConvTransposeKernel final : public Kernel {
 public:
  ConvTransposeKernel(const Device& device, const Graph& g, const Node& n)
      : device_(device),
        operands_(g, n),
        bias_(has_input(n, 2)),
        dims_(conv_transpose_dims(n.attributes, input_info(g, n, 0).type.shape,
                                  input_info(g, n, 1).type.shape)),
        strides_(image_strides(output_info(g, n, 0))),
        data_(device, n.name, ConvolutionPass::kData, dims_, is_channels_last(input_info(g, n, 0)),
              Convolution::Epilogue::kNone,
              {format_of(input_info(g, n, 0)), format_of(input_info(g, n, 1)),
               format_of(output_info(g, n, 0)), allows_tf32(n)}) {}
  int64_t workspace_bytes() const override { return data_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    const kernels::cuda::Out y = operands_.out(a, 0);
    data_.run(operands_.in(a, 0), operands_.in(a, 1), nullptr, y, a.workspace);
    if (bias_) add_image_bias(device_, dims_.x, strides_, a.in<float>(2), y);
  }

 private:
  const Device& device_;
  Operands operands_;
  bool bias_;
  ConvDims dims_;
  ImageStrides strides_;
  Convolution data_;
};

/// The gradients of ReLU and of a bias after a convolution: y, dy -> dpre, db.
class BiasReluGradient {
 public:
  BiasReluGradient(const Device& device, const ImageDims& d, bool channels_last)
      : device_(device), dims_(d), channels_last_(channels_last) {}
  int64_t workspace_bytes() const {
    return kernels::cuda::bias_relu_backward_workspace_bytes(dims_, channels_last_);
  }
  void run(kernels::cuda::In y, kernels::cuda::In dy, kernels::cuda::Out dpre, float* db,
           void* workspace) const {
    kernels::cuda::bias_relu_backward(dims_, channels_last_,
                                      {.y = y, .dy = dy, .dpre = dpre, .db = db},
                                      {device_.stream(), workspace});
  }

 private:
  const Device& device_;
  ImageDims dims_;
  bool channels_last_;
};

/// The gradients x, w, dy -> dx, dw, db. With input 3, y = relu(...), they are those before the
/// ReLU, and output 3, dpre, replaces dy. The kernels run one after another on one stream, so they
/// share one workspace.
template <bool kTransposed>
class ConvGradKernel final : public Kernel {
 public:
  ConvGradKernel(const Device& device, const Graph& g, const Node& n) : operands_(g, n) {
    const bool behind_relu = has_input(n, 3);
    const TensorInfo &x = input_info(g, n, 0), &w = input_info(g, n, 1);
    const TensorInfo& dy = behind_relu ? output_info(g, n, 3) : input_info(g, n, 2);
    const bool channels_last = is_channels_last(x);
    const ConvDims d = kTransposed ? conv_transpose_dims(n.attributes, x.type.shape, w.type.shape)
                                   : conv_dims(n, x, w);
    if (has_output(n, 0)) {
      data_.emplace(device, n.name,
                    kTransposed ? ConvolutionPass::kForward : ConvolutionPass::kData, d,
                    channels_last, Convolution::Epilogue::kNone,
                    Convolution::Storage{format_of(dy), format_of(w),
                                         format_of(output_info(g, n, 0)), allows_tf32(n)});
      workspace_bytes_ = data_->workspace_bytes();
    }
    if (has_output(n, 1)) {
      const TensorInfo &image = kTransposed ? dy : x, &output = kTransposed ? x : dy;
      weights_.emplace(device, n.name, ConvolutionPass::kWeights, d, channels_last,
                       Convolution::Epilogue::kNone,
                       Convolution::Storage{format_of(image), format_of(output),
                                            format_of(output_info(g, n, 1)), allows_tf32(n)});
      workspace_bytes_ = std::max(workspace_bytes_, weights_->workspace_bytes());
    }
    if (behind_relu) {
      bias_relu_.emplace(device, d.y(), channels_last);
      workspace_bytes_ = std::max(workspace_bytes_, bias_relu_->workspace_bytes());
    } else if (has_output(n, 2) && !kTransposed && weights_ && weights_->gives_bias_gradient()) {
      bias_in_weights_ = true;
    } else if (has_output(n, 2)) {
      bias_.emplace(device, kTransposed ? d.x : d.y(), image_strides(dy));
      workspace_bytes_ = std::max(workspace_bytes_, bias_->workspace_bytes());
    }
  }
  int64_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const KernelArgs& a) override {
    const auto x = operands_.in(a, 0), w = operands_.in(a, 1);
    auto dy = operands_.in(a, 2);
    if (bias_relu_) {
      const auto dpre = operands_.out(a, 3);
      bias_relu_->run(operands_.in(a, 3), dy, dpre, a.out<float>(2), a.workspace);
      dy = dpre;
    }
    if (data_) data_->run(dy, w, nullptr, operands_.out(a, 0), a.workspace);
    if (bias_in_weights_) {
      weights_->run_gradients(x, dy, operands_.out(a, 1), a.out<float>(2), a.workspace);
    } else if (weights_) {
      weights_->run(kTransposed ? dy : x, kTransposed ? x : dy, nullptr, operands_.out(a, 1),
                    a.workspace);
    }
    if (bias_) bias_->run(dy, operands_.out(a, 2), a.workspace);
  }

 private:
  Operands operands_;
  std::optional<Convolution> data_, weights_;
  std::optional<BiasGradient> bias_;
  std::optional<BiasReluGradient> bias_relu_;
  bool bias_in_weights_ = false;
  int64_t workspace_bytes_ = 0;
};

}  // namespace

std::span<const CudaEntry> convolution_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"Conv", make_device_kernel<ConvKernel<false>>},
      {"ConvGrad", make_device_kernel<ConvGradKernel<false>>},
      {"ConvRelu", make_device_kernel<ConvKernel<true>>},
      {"ReluConvGrad", make_device_kernel<ConvGradKernel<false>>},
      {"ConvTranspose", make_device_kernel<ConvTransposeKernel>},
      {"ConvTransposeGrad", make_device_kernel<ConvGradKernel<true>>},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
