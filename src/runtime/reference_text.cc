#include "src/runtime/reference_kernels.h"
#include "src/runtime/text_kernels.h"

namespace trainyard {
namespace {

using namespace kernels;  // NOLINT: contracts and reference:: loops

std::unique_ptr<Kernel> make_recurrent(ReferenceContext&, const Graph& g, const Node& n) {
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d = recurrent_dims(g, n), bias = has_input(n, 4)](const KernelArgs& a) {
      reference::recurrent_forward(d, recurrent_forward_args<T>(a, bias));
    });
  });
}

std::unique_ptr<Kernel> make_recurrent_grad(ReferenceContext&, const Graph& g, const Node& n) {
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d = recurrent_dims(g, n), count = n.inputs.size()](const KernelArgs& a) {
      reference::recurrent_backward(d, recurrent_backward_args<T>(a, count));
    });
  });
}

std::unique_ptr<Kernel> make_embedding_bag(ReferenceContext&, const Graph& g, const Node& n) {
  return with_float_type(input_info(g, n, 0).type.dtype, [&]<typename T>(T) {
    return make_kernel([d = embedding_bag_dims(g, n)](const KernelArgs& a) {
      reference::embedding_bag(d, a.in<T>(0), a.in<int32_t>(1), a.out<T>(0));
    });
  });
}

std::unique_ptr<Kernel> make_embedding_bag_grad(ReferenceContext&, const Graph& g, const Node& n) {
  return with_float_type(input_info(g, n, 1).type.dtype, [&]<typename T>(T) {
    return make_kernel([d = embedding_bag_dims(g, n)](const KernelArgs& a) {
      reference::embedding_bag_backward(d, a.in<int32_t>(0), a.in<T>(1), a.out<T>(0));
    });
  });
}

}  // namespace

std::span<const ReferenceEntry> reference_text_kernels() {
  static constexpr ReferenceEntry kEntries[] = {
      {"LSTM", make_recurrent},
      {"LSTMGrad", make_recurrent_grad},
      {"GRU", make_recurrent},
      {"GRUGrad", make_recurrent_grad},
      {"EmbeddingBag", make_embedding_bag},
      {"EmbeddingBagGrad", make_embedding_bag_grad},
  };
  return kEntries;
}

}  // namespace trainyard
