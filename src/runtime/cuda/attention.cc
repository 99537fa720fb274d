// Attention and its gradient.
#include "src/runtime/cuda/kernels.h"
#include "src/runtime/op_params.h"

namespace trainyard::cuda {
namespace {

using kernels::cuda::In;
using kernels::cuda::Out;

/// Where q, k and v, or their gradients, begin. Packed ones lie in one tensor.
template <typename View>
struct Parts {
  View q, k, v;
  Parts(const AttentionParams& p, View query, View key, View value) : q(query), k(key), v(value) {
    if (!p.packed) return;
    k = q ? q + p.part : View{};
    v = q ? k + p.part : View{};
  }
};

void check_size(const Node& n, const AttentionParams& p) {
  TRAINYARD_CHECK(kernels::cuda::takes_attention(p.dims),
                  n.name + ": the cuda backend has no attention of heads of " +
                      std::to_string(p.dims.D) + " elements");
}

std::unique_ptr<Kernel> make_attention(const Device& device, const Graph& g, const Node& n) {
  const AttentionParams p = attention_params(g, n, 0);
  check_size(n, p);
  return make_kernel([o = Operands(g, n), p, stream = device.stream()](const KernelArgs& a) {
    const Parts<In> x(p, o.in(a, 0), o.in(a, 1), o.in(a, 2));
    kernels::cuda::attention_forward(p.dims, attention_step(a, 0), x.q, x.k, x.v, o.out(a, 0),
                                     a.out<float>(1), stream);
  });
}

std::unique_ptr<Kernel> make_attention_grad(const Device& device, const Graph& g, const Node& n) {
  const AttentionParams p = attention_params(g, n, 3);
  check_size(n, p);
  return make_kernel(
      [o = Operands(g, n), p, stream = device.stream()](const KernelArgs& a) {
        const Parts<In> x(p, o.in(a, 3), o.in(a, 4), o.in(a, 5));
        const Parts<Out> dx(p, o.out(a, 0), o.out(a, 1), o.out(a, 2));
        kernels::cuda::attention_backward(p.dims, attention_step(a, 3), x.q, x.k, x.v, o.in(a, 0),
                                          a.in<float>(1), o.in(a, 2), dx.q, dx.k, dx.v, a.workspace,
                                          stream);
      },
      kernels::cuda::attention_backward_workspace_bytes(p.dims));
}

}  // namespace

std::span<const CudaEntry> attention_kernels() {
  static constexpr CudaEntry kEntries[] = {
      {"Attention", make_attention},
      {"AttentionGrad", make_attention_grad},
  };
  return kEntries;
}

}  // namespace trainyard::cuda
