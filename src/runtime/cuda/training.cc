// src/runtime/cuda/training.cc: losses, and constants such as the initial gradient of the loss.
#include "src/runtime/common/loss_kernels.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard::cuda {
namespace {

using kernels::SoftmaxXentParams;

/// Base of the forward and backward kernels: stores the class weights in device memory.
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

/// Target is int32_t for labels, or float for class probabilities.
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

/// Like SoftmaxXentKernel, for the classes of one rank.
class SplitXentKernel : public Kernel {
 public:
  SplitXentKernel(const Device& device, const Graph& g, const Node& n)
      : stream_(device.stream()), p_(split_xent_params(g, n)) {
    const std::vector<float> all(p_.loss.weights.begin(), p_.loss.weights.end());
    std::vector<float> parts;
    for (int64_t q = 0; q < p_.parts; ++q) {
      const int64_t first = kernels::class_part_first(p_.loss.classes, p_.width, q);
      const int64_t end = kernels::class_part_first(p_.loss.classes, p_.width, q + 1);
      double sum = all.empty() ? static_cast<double>(end - first) : 0;
      for (int64_t k = first; k < end && !all.empty(); ++k) {
        sum += p_.loss.weights[static_cast<size_t>(k)];
      }
      parts.push_back(static_cast<float>(sum));
    }
    if (!all.empty()) weights_ = device.upload(std::as_bytes(std::span(all)));
    part_weights_ = device.upload(std::as_bytes(std::span(parts)));
  }

 protected:
  const float* weights() const { return static_cast<const float*>(weights_.get()); }
  const float* part_weights() const { return static_cast<const float*>(part_weights_.get()); }

  CUstream_st* stream_;
  kernels::SplitXentParams p_;

 private:
  DeviceMemory weights_, part_weights_;
};

class ClassSoftmaxForward final : public SplitXentKernel {
 public:
  using SplitXentKernel::SplitXentKernel;
  void run(const KernelArgs& a) override {
    kernels::cuda::class_softmax(p_, weights(),
                                 {.z = a.in<float>(0),
                                  .label = a.in<int32_t>(1),
                                  .statistics = a.out<float>(0),
                                  .q = a.out<float>(1)},
                                 {stream_, a.workspace});
  }
};

class SplitXentForward final : public SplitXentKernel {
 public:
  using SplitXentKernel::SplitXentKernel;
  int64_t workspace_bytes() const override {
    return kernels::cuda::split_xent_forward_workspace_bytes(p_);
  }
  void run(const KernelArgs& a) override {
    kernels::cuda::split_xent_forward(p_, weights(), part_weights(),
                                      {.q = a.in<float>(0),
                                       .label = a.in<int32_t>(1),
                                       .statistics = a.in<float>(2),
                                       .loss = a.out<float>(0),
                                       .prob = a.out<float>(1)},
                                      {stream_, a.workspace});
  }
};

class SplitXentBackward final : public SplitXentKernel {
 public:
  using SplitXentKernel::SplitXentKernel;
  int64_t workspace_bytes() const override {
    return kernels::cuda::split_xent_backward_workspace_bytes(p_);
  }
  void run(const KernelArgs& a) override {
    kernels::cuda::split_xent_backward(p_, weights(),
                                       {.prob = a.in<float>(0),
                                        .label = a.in<int32_t>(1),
                                        .dloss = a.in<float>(2),
                                        .dz = a.out<float>(0)},
                                       {stream_, a.workspace});
  }
};

template <typename K>
std::unique_ptr<Kernel> make_of(const Device& device, const Graph& g, const Node& n) {
  return std::make_unique<K>(device, g, n);
}

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
      {"ClassSoftmax", make_of<ClassSoftmaxForward>},
      {"SplitSoftmaxCrossEntropyLoss", make_of<SplitXentForward>},
      {"SplitSoftmaxCrossEntropyLossGrad", make_of<SplitXentBackward>},
      {"SampleClasses", make_sample_classes<C, kernels::cuda::sample_classes_workspace_bytes>},
      {"TakeRows", make_take_rows<C>},
      {"SampledSoftmaxCrossEntropyLoss",
       make_sampled_xent<C, kernels::cuda::sampled_xent_workspace_bytes>},
      {"SampledSoftmaxCrossEntropyLossGrad",
       make_sampled_xent_grad<C, kernels::cuda::sampled_xent_backward_workspace_bytes>},
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
