#include "src/runtime/common/text_kernels.h"
#include "src/runtime/cpu/kernels.h"

namespace trainyard {
namespace {

using kernels::RecurrentCell;

class RecurrentKernel final : public Kernel {
 public:
  RecurrentKernel(CpuContext& context, const Graph& g, const Node& n, RecurrentCell cell)
      : operands_(context.team), layer_(recurrent_dims(g, n, cell), context.team) {}
  int64_t workspace_bytes() const override { return layer_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    layer_.run(recurrent_forward_operands(operands_, a), a.workspace);
  }

 private:
  CpuOperands operands_;
  kernels::cpu::RecurrentForward layer_;
};

class RecurrentGradKernel final : public Kernel {
 public:
  RecurrentGradKernel(CpuContext& context, const Graph& g, const Node& n, RecurrentCell cell)
      : operands_(context.team),
        layer_(recurrent_dims(g, n, cell), has_output(n, 0), context.team) {}
  int64_t workspace_bytes() const override { return layer_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    layer_.run(recurrent_backward_operands(operands_, a), a.workspace);
  }

 private:
  CpuOperands operands_;
  kernels::cpu::RecurrentBackward layer_;
};

template <typename K, RecurrentCell kCell>
std::unique_ptr<Kernel> make_recurrent(CpuContext& context, const Graph& g, const Node& n) {
  return std::make_unique<K>(context, g, n, kCell);
}

}  // namespace

std::span<const CpuEntry> cpu_text_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"LSTM", make_recurrent<RecurrentKernel, RecurrentCell::kLstm>},
      {"LSTMGrad", make_recurrent<RecurrentGradKernel, RecurrentCell::kLstm>},
      {"GRU", make_recurrent<RecurrentKernel, RecurrentCell::kGru>},
      {"GRUGrad", make_recurrent<RecurrentGradKernel, RecurrentCell::kGru>},
  };
  return kEntries;
}

}  // namespace trainyard
