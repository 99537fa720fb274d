// Functions of one number, movement, resampling, arithmetic and reductions as plain loops.
#include "kernels/activation.h"
#include "kernels/arithmetic.h"
#include "kernels/movement.h"
#include "kernels/reduce.h"
#include "src/runtime/activation_kernels.h"
#include "src/runtime/box_kernels.h"
#include "src/runtime/reference_kernels.h"

namespace trainyard {

template <typename T>
struct ReferenceLoops : HostOperands<ReferenceLoops<T>, T> {
  template <typename F>
  void activation(const F& f, int64_t count, const T* x, T* y) const {
    kernels::reference::activation_forward(count, x, y, f);
  }
  template <typename F>
  void activation_grad(const F& f, int64_t count, const T* saved, const T* dy, T* dx) const {
    kernels::reference::activation_backward(count, saved, dy, dx, f);
  }
  void copy(const kernels::Box<2>& box, const T* x, T* y) const {
    kernels::reference::copy(box, x, y);
  }
  void resample(const kernels::ResampleParams& p, const T* x, T* y) const {
    kernels::reference::resample(p, 0, p.rows(), x, y);
  }
  template <typename F>
  void arithmetic(const kernels::Box<3>& box, const T* a, const T* b, T* y) const {
    kernels::reference::arithmetic<F>(box, a, b, y);
  }
  template <typename F>
  void arithmetic_grad(const kernels::Box<3>& box, const T* a, const T* b, const T* dy, T* da,
                       T* db) const {
    kernels::reference::arithmetic_grad<F>(box, a, b, dy, da, db);
  }
  void reduce(const kernels::ReduceParams& p, const T* x, T* y, void* /*workspace*/) const {
    kernels::reference::reduce(p, x, y);
  }
  void reduce_grad(const kernels::ReduceParams& p, const T* x, const T* y, const T* dy, T* dx,
                   void* /*workspace*/) const {
    kernels::reference::reduce_grad(p, x, y, dy, dx);
  }
};

template <typename F>
std::unique_ptr<Kernel> with_loops(ReferenceContext&, const Graph&, const Node&,
                                   const TensorInfo& t, F f) {
  return with_float_type(t.type.dtype, [&]<typename T>(T) { return f(ReferenceLoops<T>()); });
}

std::span<const ReferenceEntry> reference_activation_kernels() {
  return activation_kernels<ReferenceContext>();
}

std::span<const ReferenceEntry> reference_box_kernels() { return box_kernels<ReferenceContext>(); }

}  // namespace trainyard
