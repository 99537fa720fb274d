// Parameter updates, and what happens to gradients before.
#include "kernels/gradient.h"
#include "src/runtime/op_params.h"
#include "src/runtime/reference_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

std::unique_ptr<Kernel> make_sgd(ReferenceContext&, const Graph& g, const Node& n) {
  const SgdParams p = sgd_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      reference::sgd(p, a.in<T>(1), a.in<float>(2), a.mut<T>(0), a.mut<T>(1));
    });
  });
}

std::unique_ptr<Kernel> make_adam(ReferenceContext&, const Graph& g, const Node& n) {
  const AdamParams p = adam_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      reference::adam(p, a.in<T>(1), a.in<float>(2), a.in<int64_t>(3), a.mut<T>(0), a.mut<T>(1),
                      a.mut<T>(2));
    });
  });
}

std::unique_ptr<Kernel> make_rmsprop(ReferenceContext&, const Graph& g, const Node& n) {
  const RmspropParams p = rmsprop_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      reference::rmsprop(p, a.in<T>(1), a.in<float>(2), a.mut<T>(0), a.mut<T>(1), a.mut<T>(2),
                         a.mut<T>(3));
    });
  });
}

std::unique_ptr<Kernel> make_lion(ReferenceContext&, const Graph& g, const Node& n) {
  const LionParams p = lion_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      reference::lion(p, a.in<T>(1), a.in<float>(2), a.mut<T>(0), a.mut<T>(1));
    });
  });
}

std::unique_ptr<Kernel> make_adafactor(ReferenceContext&, const Graph& g, const Node& n) {
  const AdafactorParams p = adafactor_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      reference::adafactor(p, a.in<T>(1), a.in<float>(2), a.in<int64_t>(3), a.mut<T>(0),
                           a.mut<T>(2), a.mut<T>(1));
    });
  });
}

std::unique_ptr<Kernel> make_muon(ReferenceContext&, const Graph& g, const Node& n) {
  const MuonParams p = muon_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel(
        [p](const KernelArgs& a) {
          reference::muon(p, a.in<T>(1), a.in<float>(2), a.mut<T>(0), a.mut<T>(1),
                          static_cast<T*>(a.workspace));
        },
        reference::muon_workspace_elements(p) * static_cast<int64_t>(sizeof(T)));
  });
}

std::unique_ptr<Kernel> make_gradient_norm(ReferenceContext&, const Graph& g, const Node& n) {
  const GradientNormParams p = gradient_norm_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      reference::gradient_norm<T>(p, a.inputs, p.scaled ? a.in<T>(p.counts.size()) : nullptr,
                                  a.out<T>(0), a.out<T>(1));
    });
  });
}

std::unique_ptr<Kernel> make_clip_gradient(ReferenceContext&, const Graph& g, const Node& n) {
  const ClipGradientParams p = clip_gradient_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p, scaled = has_input(n, 1)](const KernelArgs& a) {
      reference::clip_gradient(p, a.in<T>(0), scaled ? a.in<T>(1) : nullptr, a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_loss_scale(ReferenceContext&, const Graph& g, const Node& n) {
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([s = loss_scaling(n)](const KernelArgs& a) {
      reference::loss_scale_update(s, a.in<T>(3), a.in<float>(4), loss_scale<T>(a),
                                   loss_scale_step<T>(a));
    });
  });
}

std::unique_ptr<Kernel> make_accumulate(ReferenceContext&, const Graph& g, const Node& n) {
  const TensorType type = input_info(g, n, 0).type;
  const double share = n.attributes.get_float("share", 1);
  return with_float_type(type.dtype, [&]<typename T>(T) {
    return make_kernel([count = type.shape.elements(), share](const KernelArgs& a) {
      reference::accumulate_gradient(count, share, a.in<T>(1), a.in<int64_t>(2), a.mut<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_moving_average(ReferenceContext&, const Graph& g, const Node& n) {
  const MovingAverageParams p = moving_average_params(g, n);
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([p](const KernelArgs& a) {
      reference::moving_average(p, a.in<T>(1), a.in<int64_t>(2), a.mut<T>(0));
    });
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_update_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
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
