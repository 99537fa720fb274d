#include "src/runtime/common/text_kernels.h"
#include "src/runtime/reference/kernels.h"

namespace trainyard {
namespace {

using kernels::RecurrentCell;

template <RecurrentCell kCell>
std::unique_ptr<Kernel> make_recurrent(ReferenceContext& context, const Graph& g, const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&](auto o) {
    return make_kernel([o, d = recurrent_dims(g, n, kCell)](const KernelArgs& a) {
      kernels::reference::recurrent_forward(d, recurrent_forward_operands(o, a));
    });
  });
}

template <RecurrentCell kCell>
std::unique_ptr<Kernel> make_recurrent_grad(ReferenceContext& context, const Graph& g,
                                            const Node& n) {
  return with_operands(context, g, n, input_info(g, n, 0), [&](auto o) {
    return make_kernel([o, d = recurrent_dims(g, n, kCell)](const KernelArgs& a) {
      kernels::reference::recurrent_backward(d, recurrent_backward_operands(o, a));
    });
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_text_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
      {"LSTM", make_recurrent<RecurrentCell::kLstm>},
      {"LSTMGrad", make_recurrent_grad<RecurrentCell::kLstm>},
      {"GRU", make_recurrent<RecurrentCell::kGru>},
      {"GRUGrad", make_recurrent_grad<RecurrentCell::kGru>},
  };
  return kEntries;
}

}  // namespace trainyard
