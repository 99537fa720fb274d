// src/runtime/cpu/training.cc: losses, and constants such as the initial gradient of the loss.
#include "src/runtime/common/loss_kernels.h"
#include "src/runtime/cpu/kernels.h"

namespace trainyard {

std::span<const CpuEntry> cpu_training_kernels() {
  using C = CpuContext;
  static constexpr CpuEntry kEntries[] = {
      {"SoftmaxCrossEntropyLoss", make_softmax_xent<C, kernels::cpu::softmax_xent_workspace_bytes>},
      {"KullbackLeiblerDivergence",
       make_softmax_xent<C, kernels::cpu::softmax_xent_workspace_bytes>},
      {"SplitSoftmaxCrossEntropyLoss",
       make_split_xent<C, kernels::cpu::split_xent_workspace_bytes>},
      {"SampleClasses", make_sample_classes<C, kernels::cpu::sample_classes_workspace_bytes>},
      {"SampledSoftmaxCrossEntropyLoss",
       make_sampled_xent<C, kernels::cpu::sampled_xent_workspace_bytes>},
#define TRAINYARD_ROW(F)                                                               \
  {#F, make_pointwise_loss<math::F, C, kernels::cpu::pointwise_loss_workspace_bytes>}, \
      {#F "Grad", make_pointwise_loss_grad<math::F, C>},
      TRAINYARD_FOR_EACH_POINTWISE_LOSS(TRAINYARD_ROW)
#undef TRAINYARD_ROW
  };
  return kEntries;
}

}  // namespace trainyard
