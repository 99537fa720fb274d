// Functions of one number, movement, resampling, arithmetic and reductions on the CPU.
#include "kernels/activation.h"
#include "kernels/arithmetic.h"
#include "kernels/movement.h"
#include "kernels/reduce.h"
#include "src/runtime/activation_kernels.h"
#include "src/runtime/box_kernels.h"
#include "src/runtime/cpu_kernels.h"

namespace trainyard {

struct CpuLoops : HostOperands<CpuLoops, float> {
  explicit CpuLoops(kernels::cpu::Team& t) : team(&t) {}
  kernels::cpu::Team* team;
  template <typename F>
  void activation(const F& f, int64_t count, const float* x, float* y) const {
    kernels::cpu::activation_forward(count, x, y, *team, f);
  }
  template <typename F>
  void activation_grad(const F& f, int64_t count, const float* saved, const float* dy,
                       float* dx) const {
    kernels::cpu::activation_backward(count, saved, dy, dx, *team, f);
  }
  void copy(const kernels::Box<2>& box, const float* x, float* y) const {
    kernels::cpu::copy(box, x, y, *team);
  }
  void resample(const kernels::ResampleParams& p, const float* x, float* y) const {
    kernels::cpu::resample(p, x, y, *team);
  }
  template <typename F>
  void arithmetic(const kernels::Box<3>& box, const float* a, const float* b, float* y) const {
    kernels::cpu::arithmetic<F>(box, a, b, y, *team);
  }
  template <typename F>
  void arithmetic_grad(const kernels::Box<3>& box, const float* a, const float* b, const float* dy,
                       float* da, float* db) const {
    kernels::cpu::arithmetic_grad<F>(box, a, b, dy, da, db, *team);
  }
  void reduce(const kernels::ReduceParams& p, const float* x, float* y, void* /*workspace*/) const {
    kernels::cpu::reduce(p, x, y, *team);
  }
  void reduce_grad(const kernels::ReduceParams& p, const float* x, const float* y, const float* dy,
                   float* dx, void* /*workspace*/) const {
    kernels::cpu::reduce_grad(p, x, y, dy, dx, *team);
  }
};

template <typename F>
std::unique_ptr<Kernel> with_loops(CpuContext& context, const Graph&, const Node& n,
                                   const TensorInfo& t, F f) {
  require_f32(n, t);
  return f(CpuLoops(context.team));
}

std::span<const CpuEntry> cpu_activation_kernels() { return activation_kernels<CpuContext>(); }

std::span<const CpuEntry> cpu_box_kernels() { return box_kernels<CpuContext>(); }

}  // namespace trainyard
