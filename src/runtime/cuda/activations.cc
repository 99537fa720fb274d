// Functions of one number. The makers are those of every backend
// (src/runtime/activation_kernels.h).
#include "src/runtime/activation_kernels.h"

#include "src/runtime/cuda/kernels.h"

namespace trainyard {
namespace cuda {
namespace {

class ActivationLoops {
 public:
  ActivationLoops(const Device& device, const Graph& g, const Node& n)
      : stream_(device.stream()), operands_(g, n) {}
  kernels::cuda::In in(const KernelArgs& a, size_t i) const { return operands_.in(a, i); }
  kernels::cuda::Out out(const KernelArgs& a, size_t i) const { return operands_.out(a, i); }
  template <typename F>
  void activation(const F& f, int64_t count, kernels::cuda::In x, kernels::cuda::Out y) const {
    kernels::cuda::activation_forward(count, x, y, stream_, f);
  }
  template <typename F>
  void activation_grad(const F& f, int64_t count, kernels::cuda::In saved, kernels::cuda::In dy,
                       kernels::cuda::Out dx) const {
    kernels::cuda::activation_backward(count, saved, dy, dx, stream_, f);
  }

 private:
  CUstream_st* stream_;
  Operands operands_;
};

}  // namespace
}  // namespace cuda

template <typename F>
std::unique_ptr<Kernel> with_loops(const cuda::Device& device, const Graph& g, const Node& n,
                                   const TensorInfo&, F f) {
  return f(cuda::ActivationLoops(device, g, n));
}

std::span<const cuda::CudaEntry> cuda::activation_kernels() {
  return trainyard::activation_kernels<const Device>();
}

}  // namespace trainyard
