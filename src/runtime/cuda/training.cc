// Losses, and constants such as the gradient they begin with.
#include "kernels/elementwise.h"
#include "kernels/pointwise_loss.h"
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/op_params.h"

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
    kernels::cuda::softmax_xent_forward(p_, weights(), a.in<float>(0), a.in<Target>(1),
                                        a.out<float>(0), a.out<float>(1), a.workspace, stream_);
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
    kernels::cuda::softmax_xent_backward(p_, weights(), a.in<float>(0), a.in<Target>(1),
                                         a.in<float>(2), a.out<float>(0), a.workspace, stream_);
  }
};

template <template <typename> typename K>
std::unique_ptr<Kernel> make_by_target(const Device& device, const Graph& g, const Node& n) {
  return with_target_type<float>(g, n, [&]<typename Target>(Target) -> std::unique_ptr<Kernel> {
    return std::make_unique<K<Target>>(device, g, n);
  });
}

template <typename F>
std::unique_ptr<Kernel> make_pointwise_loss(const Device& device, const Graph& g, const Node& n) {
  const int64_t count = input_info(g, n, 0).type.shape.elements();
  return with_target_type<float>(g, n, [&]<typename Target>(Target) {
    return make_kernel(
        [f = loss_of<F>(n.attributes), count, stream = device.stream()](const KernelArgs& a) {
          kernels::cuda::pointwise_loss(f, count, a.in<float>(0), a.in<Target>(1), a.out<float>(0),
                                        a.workspace, stream);
        },
        kernels::cuda::pointwise_loss_workspace_bytes(count));
  });
}

template <typename F>
std::unique_ptr<Kernel> make_pointwise_loss_grad(const Device& device, const Graph& g,
                                                 const Node& n) {
  const int64_t count = input_info(g, n, 0).type.shape.elements();
  return with_target_type<float>(g, n, [&]<typename Target>(Target) {
    return make_kernel(
        [f = loss_of<F>(n.attributes), count, stream = device.stream()](const KernelArgs& a) {
          kernels::cuda::pointwise_loss_grad(f, count, a.in<float>(0), a.in<Target>(1),
                                             a.in<float>(2), a.out<float>(0), stream);
        });
  });
}

std::unique_ptr<Kernel> make_constant(const Device& device, const Graph& g, const Node& n) {
  return make_kernel([o = Operands(g, n), count = output_info(g, n, 0).type.shape.elements(),
                      value = static_cast<float>(n.attributes.get_float("value", 0)),
                      stream = device.stream()](const KernelArgs& a) {
    kernels::cuda::fill(count, value, o.out(a, 0), stream);
  });
}

}  // namespace

std::span<const CudaEntry> training_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"SoftmaxCrossEntropyLoss", make_by_target<SoftmaxXentForward>},
      {"KullbackLeiblerDivergence", make_by_target<SoftmaxXentForward>},
      {"SoftmaxCrossEntropyLossGrad", make_by_target<SoftmaxXentBackward>},
#define TRAINYARD_ROW(F) \
  {#F, make_pointwise_loss<math::F>}, {#F "Grad", make_pointwise_loss_grad<math::F>},
      TRAINYARD_FOR_EACH_POINTWISE_LOSS(TRAINYARD_ROW)
#undef TRAINYARD_ROW
          {"ConstantOfShape", make_constant},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
