// Functions of one number, movement, resampling, arithmetic and reductions. The makers are those of
// every backend (src/runtime/activation_kernels.h, box_kernels.h).
#include <utility>

#include "kernels/activation.h"
#include "kernels/arithmetic.h"
#include "kernels/movement.h"
#include "kernels/reduce.h"
#include "kernels/resample.h"
#include "src/runtime/activation_kernels.h"
#include "src/runtime/box_kernels.h"
#include "src/runtime/cuda/kernels.h"

namespace trainyard {
namespace cuda {
namespace {

using kernels::cuda::In;
using kernels::cuda::Out;

/// A resampling with its lists on the device.
struct Resampling {
  kernels::ResampleParams params;
  DeviceMemory tables;
};

class CudaLoops {
 public:
  CudaLoops(const Device& device, const Graph& g, const Node& n)
      : device_(&device), operands_(g, n) {}
  In in(const KernelArgs& a, size_t i) const { return operands_.in(a, i); }
  Out out(const KernelArgs& a, size_t i) const { return operands_.out(a, i); }

  template <typename F>
  void activation(const F& f, int64_t count, In x, Out y) const {
    kernels::cuda::activation_forward(count, x, y, device_->stream(), f);
  }
  template <typename F>
  void activation_grad(const F& f, int64_t count, In saved, In dy, Out dx) const {
    kernels::cuda::activation_backward(count, saved, dy, dx, device_->stream(), f);
  }

  void copy(const kernels::Box<2>& box, In x, Out y) const {
    kernels::cuda::copy(box, x, y, device_->stream());
  }
  void zero(const kernels::Box<2>& box, Out y) const {
    kernels::cuda::zero(box, y, device_->stream());
  }
  void scale(const kernels::Box<2>& box, double factor, In x, Out y) const {
    kernels::cuda::scale(box, factor, x, y, device_->stream());
  }

  Resampling prepared(kernels::ResampleParams p) const {
    DeviceMemory tables = device_->upload(kernels::cuda::resample_tables(p));
    return {std::move(p), std::move(tables)};
  }
  void resample(const Resampling& r, In x, Out y) const {
    kernels::cuda::resample(r.params, r.tables.get(), x, y, device_->stream());
  }

  template <typename F>
  void arithmetic(const kernels::Box<3>& box, In a, In b, Out y) const {
    kernels::cuda::arithmetic<F>(box, a, b, y, device_->stream());
  }
  template <typename F>
  void arithmetic_grad(const kernels::Box<3>& box, In a, In b, In dy, Out da, Out db) const {
    kernels::cuda::arithmetic_grad<F>(box, a, b, dy, da, db, device_->stream());
  }

  int64_t reduce_workspace_bytes(const kernels::ReduceParams& p) const {
    return kernels::cuda::reduce_workspace_bytes(p);
  }
  void reduce(const kernels::ReduceParams& p, In x, Out y, void* workspace) const {
    kernels::cuda::reduce(p, x, y, workspace, device_->stream());
  }
  int64_t reduce_grad_workspace_bytes(const kernels::ReduceParams& p) const {
    return kernels::cuda::reduce_grad_workspace_bytes(p);
  }
  void reduce_grad(const kernels::ReduceParams& p, In x, In y, In dy, Out dx,
                   void* workspace) const {
    kernels::cuda::reduce_grad(p, x, y, dy, dx, workspace, device_->stream());
  }

 private:
  const Device* device_;
  Operands operands_;
};

}  // namespace
}  // namespace cuda

template <typename F>
std::unique_ptr<Kernel> with_loops(const cuda::Device& device, const Graph& g, const Node& n,
                                   const TensorInfo& t, F f) {
  TRAINYARD_CHECK(t.type.dtype == DType::kF32, n.name + ": the cuda backend computes in F32");
  return f(cuda::CudaLoops(device, g, n));
}

std::span<const cuda::CudaEntry> cuda::activation_kernels() {
  return trainyard::activation_kernels<const Device>();
}

std::span<const cuda::CudaEntry> cuda::box_kernels() {
  return trainyard::box_kernels<const Device>();
}

}  // namespace trainyard
