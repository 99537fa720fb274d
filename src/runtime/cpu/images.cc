// src/runtime/cpu/images.cc: convolution, pooling and batch normalization on the cpu backend.
#include <algorithm>

#include "kernels/alignment.h"
#include "src/runtime/common/image_kernels.h"
#include "src/runtime/cpu/kernels.h"

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
    // A bias that is trained without its weights is rare: dw is then written to the workspace.
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

}  // namespace

std::span<const CpuEntry> cpu_image_kernels() {
  using C = CpuContext;
  static constexpr CpuEntry kEntries[] = {
      {"Conv", make<ConvKernel>},
      {"ConvGrad", make<ConvGradKernel>},
      {"ConvTranspose", make<ConvTransposeKernel>},
      {"ConvTransposeGrad", make<ConvTransposeGradKernel>},
      {"BatchNormalization", make_batch_norm<false, C, cpu::batch_norm_workspace_bytes>},
      {"BatchNormalizationGrad",
       make_batch_norm_grad<false, C, cpu::batch_norm_backward_workspace_bytes>},
      {"BatchNormalizationRelu", make_batch_norm<true, C, cpu::batch_norm_workspace_bytes>},
      {"BatchNormalizationReluGrad",
       make_batch_norm_grad<true, C, cpu::batch_norm_backward_workspace_bytes>},
      {"BatchNormalizationReplay", make_batch_norm_replay<C, cpu::batch_norm_workspace_bytes>},
      {"GroupNormalization", make_group_norm<C, cpu::group_norm_workspace_bytes>},
      {"InstanceNormalization", make_group_norm<C, cpu::group_norm_workspace_bytes>},
      {"GroupNormalizationGrad", make_group_norm_grad<C, cpu::group_norm_workspace_bytes>},
  };
  return kEntries;
}

}  // namespace trainyard
