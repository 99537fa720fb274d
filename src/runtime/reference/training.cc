// src/runtime/reference/training.cc: losses, and constants such as the initial gradient of the
// loss.
#include "src/runtime/common/loss_kernels.h"
#include "src/runtime/reference/kernels.h"

namespace trainyard {

std::span<const ReferenceEntry> reference_training_kernels() {
  using C = ReferenceContext;
  static constexpr ReferenceEntry kEntries[] = {
      {"SoftmaxCrossEntropyLoss", make_softmax_xent<C>},
      {"KullbackLeiblerDivergence", make_softmax_xent<C>},
      {"SplitSoftmaxCrossEntropyLoss", make_split_xent<C>},
      {"SampleClasses", make_sample_classes<C>},
      {"SampledSoftmaxCrossEntropyLoss", make_sampled_xent<C>},
#define TRAINYARD_ROW(F) \
  {#F, make_pointwise_loss<math::F, C>}, {#F "Grad", make_pointwise_loss_grad<math::F, C>},
      TRAINYARD_FOR_EACH_POINTWISE_LOSS(TRAINYARD_ROW)
#undef TRAINYARD_ROW
  };
  return kEntries;
}

}  // namespace trainyard
