#include "src/ops/relu.h"

#include "src/ops/activation.h"

namespace trainyard {
namespace {

class ReluGrad final : public ActivationGradOp {
 public:
  ReluGrad() : ActivationGradOp("y") {}
  std::string_view type() const override { return "ReluGrad"; }

 protected:
  int64_t flops_per_element() const override { return 1; }
};

class Relu final : public ActivationOp {
 public:
  std::string_view type() const override { return "Relu"; }
  void differentiate(GradientContext& c) const override {
    differentiate_activation(c, *relu_grad_op(), c.output(0));
  }

 protected:
  int64_t flops_per_element() const override { return 1; }
};

}  // namespace

const Op* relu_op() {
  static const Relu op;
  return &op;
}
const Op* relu_grad_op() {
  static const ReluGrad op;
  return &op;
}

}  // namespace trainyard
