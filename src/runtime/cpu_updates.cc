// Parameter updates, and what happens to gradients before.
#include "kernels/gradient.h"
#include "src/runtime/cpu_kernels.h"
#include "src/runtime/op_params.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

std::unique_ptr<Kernel> make_sgd(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([p = sgd_params(g, n), &team = context.team](const KernelArgs& a) {
    cpu::sgd(p, a.in<float>(1), a.in<float>(2), a.mut<float>(0), a.mut<float>(1), team);
  });
}

std::unique_ptr<Kernel> make_adam(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([p = adam_params(g, n), &team = context.team](const KernelArgs& a) {
    cpu::adam(p, a.in<float>(1), a.in<float>(2), a.in<int64_t>(3), a.mut<float>(0), a.mut<float>(1),
              a.mut<float>(2), team);
  });
}

std::unique_ptr<Kernel> make_rmsprop(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([p = rmsprop_params(g, n), &team = context.team](const KernelArgs& a) {
    cpu::rmsprop(p, a.in<float>(1), a.in<float>(2), a.mut<float>(0), a.mut<float>(1),
                 a.mut<float>(2), a.mut<float>(3), team);
  });
}

std::unique_ptr<Kernel> make_lion(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([p = lion_params(g, n), &team = context.team](const KernelArgs& a) {
    cpu::lion(p, a.in<float>(1), a.in<float>(2), a.mut<float>(0), a.mut<float>(1), team);
  });
}

std::unique_ptr<Kernel> make_adafactor(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const AdafactorParams p = adafactor_params(g, n);
  return make_kernel(
      [p, &team = context.team](const KernelArgs& a) {
        cpu::adafactor(p, a.in<float>(1), a.in<float>(2), a.in<int64_t>(3), a.mut<float>(0),
                       a.mut<float>(2), a.mut<float>(1), a.workspace, team);
      },
      cpu::adafactor_workspace_bytes(p));
}

class MuonKernel final : public Kernel {
 public:
  MuonKernel(const MuonParams& p, cpu::Team& team) : muon_(p, team) {}
  int64_t workspace_bytes() const override { return muon_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    muon_.run(a.in<float>(1), a.in<float>(2), a.mut<float>(0), a.mut<float>(1), a.workspace);
  }

 private:
  cpu::Muon muon_;
};

std::unique_ptr<Kernel> make_muon(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return std::make_unique<MuonKernel>(muon_params(g, n), context.team);
}

std::unique_ptr<Kernel> make_gradient_norm(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  const GradientNormParams p = gradient_norm_params(g, n);
  const int64_t workspace_bytes = cpu::gradient_norm_workspace_bytes(p);
  return make_kernel(
      [p, &team = context.team](const KernelArgs& a) {
        cpu::gradient_norm(p, a.inputs, p.scaled ? a.in<float>(p.counts.size()) : nullptr,
                           a.out<float>(0), a.out<float>(1), a.workspace, team);
      },
      workspace_bytes);
}

std::unique_ptr<Kernel> make_clip_gradient(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([p = clip_gradient_params(g, n), scaled = has_input(n, 1),
                      &team = context.team](const KernelArgs& a) {
    cpu::clip_gradient(p, a.in<float>(0), scaled ? a.in<float>(1) : nullptr, a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_loss_scale(CpuContext&, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([s = loss_scaling(n)](const KernelArgs& a) {
    reference::loss_scale_update(s, a.in<float>(3), a.in<float>(4), loss_scale<float>(a),
                                 loss_scale_step<float>(a));
  });
}

std::unique_ptr<Kernel> make_accumulate(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([count = input_info(g, n, 0).type.shape.elements(),
                      share = n.attributes.get_float("share", 1),
                      &team = context.team](const KernelArgs& a) {
    cpu::accumulate_gradient(count, share, a.in<float>(1), a.in<int64_t>(2), a.mut<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_moving_average(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([p = moving_average_params(g, n), &team = context.team](const KernelArgs& a) {
    cpu::moving_average(p, a.in<float>(1), a.in<int64_t>(2), a.mut<float>(0), team);
  });
}

}  // namespace

std::span<const CpuEntry> cpu_update_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"SgdUpdate", make_sgd},
      {"AdamUpdate", make_adam},
      {"AdamWUpdate", make_adam},
      {"RmspropUpdate", make_rmsprop},
      {"LionUpdate", make_lion},
      {"AdafactorUpdate", make_adafactor},
      {"MuonUpdate", make_muon},
      {"GradientNorm", make_gradient_norm},
      {"ClipGradient", make_clip_gradient},
      {"LossScaleUpdate", make_loss_scale},
      {"AccumulateGradient", make_accumulate},
      {"MovingAverageUpdate", make_moving_average},
  };
  return kEntries;
}

}  // namespace trainyard
