#include "src/runtime/cpu_kernels.h"
#include "src/runtime/text_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and cpu:: kernels

class RecurrentKernel final : public Kernel {
 public:
  RecurrentKernel(CpuContext& context, const Graph& g, const Node& n)
      : bias_(has_input(n, 4)), layer_(recurrent_dims(g, n), context.team) {}
  int64_t workspace_bytes() const override { return layer_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    layer_.run(recurrent_forward_args<float>(a, bias_), a.workspace);
  }

 private:
  bool bias_;
  cpu::RecurrentForward layer_;
};

class RecurrentGradKernel final : public Kernel {
 public:
  RecurrentGradKernel(CpuContext& context, const Graph& g, const Node& n)
      : input_count_(n.inputs.size()),
        layer_(recurrent_dims(g, n), has_output(n, 0), context.team) {}
  int64_t workspace_bytes() const override { return layer_.workspace_bytes(); }
  void run(const KernelArgs& a) override {
    layer_.run(recurrent_backward_args<float>(a, input_count_), a.workspace);
  }

 private:
  size_t input_count_;
  cpu::RecurrentBackward layer_;
};

std::unique_ptr<Kernel> make_embedding_bag(CpuContext& context, const Graph& g, const Node& n) {
  require_f32(n, input_info(g, n, 0));
  return make_kernel([d = embedding_bag_dims(g, n), &team = context.team](const KernelArgs& a) {
    cpu::embedding_bag(d, a.in<float>(0), a.in<int32_t>(1), a.out<float>(0), team);
  });
}

std::unique_ptr<Kernel> make_embedding_bag_grad(CpuContext& context, const Graph& g,
                                                const Node& n) {
  require_f32(n, input_info(g, n, 1));
  return make_kernel([d = embedding_bag_dims(g, n), &team = context.team](const KernelArgs& a) {
    cpu::embedding_bag_backward(d, a.in<int32_t>(0), a.in<float>(1), a.out<float>(0), team);
  });
}

}  // namespace

std::span<const CpuEntry> cpu_text_kernels() {
  static constexpr CpuEntry kEntries[] = {
      {"LSTM", make<RecurrentKernel>},      {"LSTMGrad", make<RecurrentGradKernel>},
      {"GRU", make<RecurrentKernel>},       {"GRUGrad", make<RecurrentGradKernel>},
      {"EmbeddingBag", make_embedding_bag}, {"EmbeddingBagGrad", make_embedding_bag_grad},
  };
  return kEntries;
}

}  // namespace trainyard
