#include "kernels/dropout.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/layout.h"
#include "src/runtime/cpu_kernels.h"
#include "src/runtime/half_kernel.h"
#include "src/runtime/op_params.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

class GemmKernel final : public Kernel {
 public:
  GemmKernel(CpuContext& context, const Graph& g, const Node& n)
      : bias_(has_input(n, 2)), gemm_(gemm_dims(g, n), bias_, context.team) {}
  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    gemm_.run(a.in<float>(0), a.in<float>(1), bias_ ? a.in<float>(2) : nullptr, a.out<float>(0),
              a.workspace);
  }

 private:
  bool bias_;
  cpu::GemmForward gemm_;
};

class GemmGradKernel final : public Kernel {
 public:
  GemmGradKernel(CpuContext& context, const Graph& g, const Node& n)
      : gemm_(gemm_dims(g, n), has_output(n, 0), has_output(n, 1), context.team) {}
  int64_t workspace_bytes() const override { return gemm_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    gemm_.run(a.in<float>(0), a.in<float>(1), a.in<float>(2), a.out<float>(0), a.out<float>(1),
              a.out<float>(2), a.workspace);
  }

 private:
  cpu::GemmBackward gemm_;
};

// An image whose two orders are the same bytes needs no transposition.
bool is_transposed(const TensorInfo& t) {
  if (t.type.shape.rank() != 4 || t.layout != Layout::kChannelsLast) return false;
  const ImageDims d = image_dims(t.type.shape);
  return d.C > 1 && d.pixels() > 1;
}

// Flatten reads an image in logical order, its gradient writes one; the rest is a copy.
std::unique_ptr<Kernel> make_flatten(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& x = input_info(g, n, 0);
  require_f32(n, x);
  if (is_transposed(x)) {
    return make_kernel([d = image_dims(x.type.shape), &team = context.team](const KernelArgs& a) {
      cpu::nhwc_to_nchw(d, a.in<float>(0), a.out<float>(0), team);
    });
  }
  return make_stored_copy(conversion_of(context), x, output_info(g, n, 0));
}

std::unique_ptr<Kernel> make_flatten_grad(CpuContext& context, const Graph& g, const Node& n) {
  const TensorInfo& dx = output_info(g, n, 0);
  require_f32(n, dx);
  if (is_transposed(dx)) {
    return make_kernel([d = image_dims(dx.type.shape), &team = context.team](const KernelArgs& a) {
      cpu::nchw_to_nhwc(d, a.in<float>(0), a.out<float>(0), team);
    });
  }
  return make_stored_copy(conversion_of(context), input_info(g, n, 0), dx);
}

std::unique_ptr<Kernel> make_dropout(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([p = dropout_params(g, n), &team = context.team](const KernelArgs& a) {
    cpu::dropout(p, a.in<int64_t>(1), a.in<float>(0), a.out<float>(0), team);
  });
}

}  // namespace

std::span<const CpuEntry> cpu_dense_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"Gemm", make<GemmKernel>},         {"GemmGrad", make<GemmGradKernel>},
      {"Flatten", make_flatten},          {"FlattenGrad", make_flatten_grad},
      {"Reshape", make_flatten},  // row-major always: a copy
      {"ReshapeGrad", make_flatten_grad}, {"Dropout", make_dropout},
      {"DropoutGrad", make_dropout},
  };
  return kEntries;
}

}  // namespace trainyard
