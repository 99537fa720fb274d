// Convolution, pooling and batch normalisation on the cpu backend.
#include <algorithm>

#include "kernels/alignment.h"
#include "src/runtime/cpu_kernels.h"
#include "src/runtime/image_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

cpu::ConvOptions conv_options(const TensorInfo& x, bool bias) {
  return {x.layout == Layout::kChannelsLast, bias};
}

class ConvKernel final : public Kernel {
 public:
  ConvKernel(CpuContext& context, const Graph& g, const Node& n)
      : bias_(has_input(n, 2)),
        conv_(conv_dims(n, input_info(g, n, 0), input_info(g, n, 1)),
              conv_options(input_info(g, n, 0), bias_), context.team) {}
  int64_t workspace_bytes() const override { return conv_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    conv_.run(a.in<float>(0), a.in<float>(1), bias_ ? a.in<float>(2) : nullptr, a.out<float>(0),
              a.workspace);
  }

 private:
  bool bias_;
  cpu::ConvForward conv_;
};

class ConvGradKernel final : public Kernel {
 public:
  ConvGradKernel(CpuContext& context, const Graph& g, const Node& n) {
    const TensorInfo& x = input_info(g, n, 0);
    const ConvDims d = conv_dims(n, x, input_info(g, n, 1));
    const cpu::ConvOptions options = conv_options(x, has_output(n, 2));
    if (has_output(n, 0)) data_ = std::make_unique<cpu::ConvBackwardData>(d, options, context.team);
    if (has_output(n, 1) || has_output(n, 2)) {
      weights_ = std::make_unique<cpu::ConvBackwardWeights>(d, options, context.team);
    }
    // A bias that is trained without its weights is rare: dw then goes to the workspace.
    if (weights_ && !has_output(n, 1)) {
      dw_offset_ = round_up(weights_->workspace_bytes(), kHostAlignment);
      dw_bytes_ = d.weight_elements() * static_cast<int64_t>(sizeof(float));
    }
  }
  int64_t workspace_bytes() const override {
    return std::max(data_ ? data_->workspace_bytes() : 0,
                    weights_ ? std::max(weights_->workspace_bytes(), dw_offset_ + dw_bytes_) : 0);
  }
  void run(const KernelArgs& a) override {
    const float *x = a.in<float>(0), *w = a.in<float>(1), *dy = a.in<float>(2);
    if (data_) data_->run(dy, w, a.out<float>(0), a.workspace);
    if (!weights_) return;
    float* dw = a.out<float>(1);
    if (dw == nullptr) {
      dw = reinterpret_cast<float*>(static_cast<std::byte*>(a.workspace) + dw_offset_);
    }
    weights_->run(x, dy, dw, a.out<float>(2), a.workspace);
  }

 private:
  std::unique_ptr<cpu::ConvBackwardData> data_;
  std::unique_ptr<cpu::ConvBackwardWeights> weights_;
  int64_t dw_offset_ = 0, dw_bytes_ = 0;
};

class ConvTransposeKernel final : public Kernel {
 public:
  ConvTransposeKernel(CpuContext& context, const Graph& g, const Node& n)
      : bias_(has_input(n, 2)),
        conv_(conv_transpose_dims(n.attributes, input_info(g, n, 0).type.shape,
                                  input_info(g, n, 1).type.shape),
              conv_options(input_info(g, n, 0), bias_), context.team) {}
  int64_t workspace_bytes() const override { return conv_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    conv_.run(a.in<float>(0), a.in<float>(1), bias_ ? a.in<float>(2) : nullptr, a.out<float>(0),
              a.workspace);
  }

 private:
  bool bias_;
  cpu::ConvTransposeForward conv_;
};

class ConvTransposeGradKernel final : public Kernel {
 public:
  ConvTransposeGradKernel(CpuContext& context, const Graph& g, const Node& n)
      : team_(context.team) {
    const TensorInfo& x = input_info(g, n, 0);
    const ConvDims d =
        conv_transpose_dims(n.attributes, x.type.shape, input_info(g, n, 1).type.shape);
    dy_ = d.x;
    channels_last_ = conv_options(x, false).channels_last;
    if (has_output(n, 0)) {
      data_ = std::make_unique<cpu::ConvTransposeBackwardData>(d, channels_last_, team_);
      workspace_bytes_ = data_->workspace_bytes();
    }
    if (has_output(n, 1)) {
      weights_ = std::make_unique<cpu::ConvTransposeBackwardWeights>(d, channels_last_, team_);
      workspace_bytes_ = std::max(workspace_bytes_, weights_->workspace_bytes());
    }
    if (has_output(n, 2)) {
      workspace_bytes_ = std::max(workspace_bytes_, cpu::image_bias_workspace_bytes(dy_));
    }
  }
  int64_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const KernelArgs& a) override {
    const float *x = a.in<float>(0), *w = a.in<float>(1), *dy = a.in<float>(2);
    if (data_) data_->run(dy, w, a.out<float>(0), a.workspace);
    if (weights_) weights_->run(x, dy, a.out<float>(1), a.workspace);
    if (float* db = a.out<float>(2); db != nullptr) {
      cpu::image_bias_gradient(dy_, channels_last_, dy, db, a.workspace, team_);
    }
  }

 private:
  cpu::Team& team_;
  ImageDims dy_{};
  bool channels_last_ = false;
  std::unique_ptr<cpu::ConvTransposeBackwardData> data_;
  std::unique_ptr<cpu::ConvTransposeBackwardWeights> weights_;
  int64_t workspace_bytes_ = 0;
};

std::unique_ptr<Kernel> make_max_pool(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const PoolDims d = pool_dims(n, x.type.shape);
  const ImageStrides xs = image_strides(x), ys = image_strides(output_info(g, n, 0));
  const bool keeps = has_output(n, 1);
  return make_kernel([=, &team = context.team](const KernelArgs& a) {
    cpu::max_pool_forward(d, xs, a.in<float>(0), ys, a.out<float>(0),
                          keeps ? a.out<uint8_t>(1) : nullptr, team);
  });
}

std::unique_ptr<Kernel> make_max_pool_grad(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  require_f32(n, dx);
  const PoolDims d = pool_dims(n, dx.type.shape);
  const ImageStrides xs = image_strides(dx), ys = image_strides(input_info(g, n, 0));
  const bool kept = has_input(n, 2);
  return make_kernel([=, &team = context.team](const KernelArgs& a) {
    cpu::max_pool_backward(d, xs, a.in<float>(1), kept ? a.in<uint8_t>(2) : nullptr, ys,
                           a.in<float>(0), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_average_pool(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const PoolDims d = pool_dims(n, x.type.shape);
  const ImageStrides xs = image_strides(x), ys = image_strides(output_info(g, n, 0));
  return make_kernel([=, &team = context.team](const KernelArgs& a) {
    cpu::average_pool_forward(d, xs, a.in<float>(0), ys, a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_average_pool_grad(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  require_f32(n, dx);
  const PoolDims d = pool_dims(n, dx.type.shape);
  const ImageStrides xs = image_strides(dx), ys = image_strides(input_info(g, n, 0));
  return make_kernel([=, &team = context.team](const KernelArgs& a) {
    cpu::average_pool_backward(d, ys, a.in<float>(0), xs, a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_global_pool(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const ImageDims d = image_dims(x.type.shape);
  const ImageStrides xs = image_strides(x);
  return make_kernel([=, &team = context.team](const KernelArgs& a) {
    cpu::global_average_pool_forward(d, xs, a.in<float>(0), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_global_pool_grad(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  require_f32(n, dx);
  const ImageDims d = image_dims(dx.type.shape);
  const ImageStrides xs = image_strides(dx);
  return make_kernel([=, &team = context.team](const KernelArgs& a) {
    cpu::global_average_pool_backward(d, a.in<float>(0), xs, a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_batch_norm(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const int64_t workspace = cpu::batch_norm_workspace_bytes(d);
  if (n.attributes.get_int("training_mode", 0) == 0) {
    return make_kernel(
        [=, &team = context.team](const KernelArgs& a) {
          cpu::batch_norm_inference(d, s, a.in<float>(0), a.in<float>(1), a.in<float>(2),
                                    a.in<float>(3), a.in<float>(4), a.out<float>(0), a.workspace,
                                    team);
        },
        workspace);
  }
  TRAINYARD_CHECK(has_output(n, 1) && has_output(n, 2),
                  n.name + ": training writes saved_mean and saved_inv_std");
  return make_kernel(
      [=, &team = context.team](const KernelArgs& a) {
        cpu::batch_norm_training(d, s, a.in<float>(0), a.in<float>(1), a.in<float>(2),
                                 a.mut<float>(0), a.mut<float>(1), a.out<float>(0), a.out<float>(1),
                                 a.out<float>(2), a.workspace, team);
      },
      workspace);
}

std::unique_ptr<Kernel> make_batch_norm_grad(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  return make_kernel(
      [=, &team = context.team](const KernelArgs& a) {
        cpu::batch_norm_backward(d, s, a.in<float>(0), a.in<float>(4), a.in<float>(1),
                                 a.in<float>(2), a.in<float>(3), a.out<float>(0), a.out<float>(1),
                                 a.out<float>(2), a.workspace, team);
      },
      cpu::batch_norm_workspace_bytes(d));
}

const float* optional_in(const KernelArgs& a, size_t i) {
  return i < a.inputs.size() ? a.in<float>(i) : nullptr;
}

std::unique_ptr<Kernel> make_batch_norm_relu(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const int64_t workspace = cpu::batch_norm_workspace_bytes(d);
  if (n.attributes.get_int("training_mode", 0) == 0) {
    return make_kernel(
        [=, &team = context.team](const KernelArgs& a) {
          cpu::batch_norm_relu_inference(d, s, a.in<float>(0), a.in<float>(1), a.in<float>(2),
                                         a.in<float>(3), a.in<float>(4), optional_in(a, 5),
                                         a.out<float>(0), a.workspace, team);
        },
        workspace);
  }
  return make_kernel(
      [=, &team = context.team](const KernelArgs& a) {
        cpu::batch_norm_relu_training(d, s, a.in<float>(0), a.in<float>(1), a.in<float>(2),
                                      a.mut<float>(0), a.mut<float>(1), optional_in(a, 5),
                                      a.out<float>(0), a.out<float>(1), a.out<float>(2),
                                      a.workspace, team);
      },
      workspace);
}

std::unique_ptr<Kernel> make_batch_norm_relu_grad(CpuContext& context, const Graph& g,
                                                  const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const bool wants_dx_or_g = has_output(n, 0) || has_output(n, 3);
  return make_kernel(
      [=, &team = context.team](const KernelArgs& a) {
        cpu::batch_norm_relu_backward(d, s, a.in<float>(0), a.in<float>(4), a.in<float>(1),
                                      a.in<float>(2), a.in<float>(3), a.in<float>(5),
                                      optional_in(a, 6), a.out<float>(0), a.out<float>(1),
                                      a.out<float>(2), a.out<float>(3), a.workspace, team);
      },
      cpu::batch_norm_relu_backward_workspace_bytes(d, s, wants_dx_or_g));
}

std::unique_ptr<Kernel> make_batch_norm_replay(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const BatchNormDims d = batch_norm_dims(n, x);
  const ImageStrides s = image_strides(x);
  const bool relu = n.attributes.get_int("relu", 0) == 1;
  return make_kernel(
      [=, &team = context.team](const KernelArgs& a) {
        cpu::batch_norm_replay(d, s, a.in<float>(0), a.in<float>(1), a.in<float>(2), a.in<float>(3),
                               a.in<float>(4), optional_in(a, 5), relu, a.out<float>(0),
                               a.workspace, team);
      },
      cpu::batch_norm_workspace_bytes(d));
}

std::unique_ptr<Kernel> make_group_norm(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const GroupNormDims d = group_norm_dims(n, x, group_count(n, x));
  const ImageStrides s = group_norm_strides(x, d);
  return make_kernel(
      [=, &team = context.team](const KernelArgs& a) {
        cpu::group_norm_forward(d, s, a.in<float>(0), a.in<float>(1), a.in<float>(2),
                                a.out<float>(0), a.out<float>(1), a.out<float>(2), a.workspace,
                                team);
      },
      cpu::group_norm_workspace_bytes(d));
}

std::unique_ptr<Kernel> make_group_norm_grad(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  const GroupNormDims d = group_norm_dims(n, x, input_info(g, n, 2).type.shape[1]);
  const ImageStrides s = group_norm_strides(x, d);
  return make_kernel(
      [=, &team = context.team](const KernelArgs& a) {
        cpu::group_norm_backward(d, s, a.in<float>(0), a.in<float>(1), a.in<float>(2),
                                 a.in<float>(3), a.in<float>(4), a.out<float>(0), a.out<float>(1),
                                 a.out<float>(2), a.workspace, team);
      },
      cpu::group_norm_workspace_bytes(d));
}

}  // namespace

std::span<const CpuEntry> cpu_image_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"Conv", make<ConvKernel>},
      {"ConvGrad", make<ConvGradKernel>},
      {"ConvTranspose", make<ConvTransposeKernel>},
      {"ConvTransposeGrad", make<ConvTransposeGradKernel>},
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
