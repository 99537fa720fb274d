// Losses, and constants such as the gradient they begin with.
#include "src/runtime/common/loss_kernels.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using kernels::SoftmaxXentParams;

/// Both ways: the classes' weights lie in device memory.
class SoftmaxXentKernel : public Kernel {
 public:
  SoftmaxXentKernel(const Device& device, const Graph& g, const Node& n)
      : stream_(device.stream()), p_(softmax_xent_params(g, n)) {
    if (p_.weights.empty()) return;
    const std::vector<float> weights(p_.weights.begin(), p_.weights.end());
    weights_ = device.upload(std::as_bytes(std::span(weights)));
  }

 protected:
  const float* weights() const { return static_cast<const float*>(weights_.get()); }

  CUstream_st* stream_;
  SoftmaxXentParams p_;

 private:
  DeviceMemory weights_;
};

/// Target: int32_t, of labels, or float, of shares.
template <typename Target>
class SoftmaxXentForward final : public SoftmaxXentKernel {
 public:
  using SoftmaxXentKernel::SoftmaxXentKernel;
  int64_t workspace_bytes() const override {
    return kernels::cuda::softmax_xent_forward_workspace_bytes(p_);
  }
  void run(const KernelArgs& a) override {
    kernels::cuda::softmax_xent_forward(p_, weights(),
                                        {.z = a.in<float>(0),
                                         .target = a.in<Target>(1),
                                         .loss = a.out<float>(0),
                                         .prob = a.out<float>(1)},
                                        {stream_, a.workspace});
  }
};

template <typename Target>
class SoftmaxXentBackward final : public SoftmaxXentKernel {
 public:
  using SoftmaxXentKernel::SoftmaxXentKernel;
  int64_t workspace_bytes() const override {
    return kernels::cuda::softmax_xent_backward_workspace_bytes(p_);
  }
  void run(const KernelArgs& a) override {
    kernels::cuda::softmax_xent_backward(p_, weights(),
                                         {.prob = a.in<float>(0),
                                          .target = a.in<Target>(1),
                                          .dloss = a.in<float>(2),
                                          .dz = a.out<float>(0)},
                                         {stream_, a.workspace});
  }
};

template <template <typename> typename K>
std::unique_ptr<Kernel> make_by_target(const Device& device, const Graph& g, const Node& n) {
  return with_target_type<float>(g, n, [&]<typename Target>(Target) -> std::unique_ptr<Kernel> {
    return std::make_unique<K<Target>>(device, g, n);
  });
}

}  // namespace

std::span<const CudaEntry> training_kernels() {
  using C = const Device;
  static constexpr CudaEntry kEntries[] = {
      {"SoftmaxCrossEntropyLoss", make_by_target<SoftmaxXentForward>},
      {"KullbackLeiblerDivergence", make_by_target<SoftmaxXentForward>},
      {"SoftmaxCrossEntropyLossGrad", make_by_target<SoftmaxXentBackward>},
#define TRAINYARD_ROW(F)                                                                \
  {#F, make_pointwise_loss<math::F, C, kernels::cuda::pointwise_loss_workspace_bytes>}, \
      {#F "Grad", make_pointwise_loss_grad<math::F, C>},
      TRAINYARD_FOR_EACH_POINTWISE_LOSS(TRAINYARD_ROW)
#undef TRAINYARD_ROW
          {"ConstantOfShape", make_constant<C>},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
