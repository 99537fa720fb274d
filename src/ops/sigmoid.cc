#include "src/ops/sigmoid.h"

#include "src/ops/activation.h"

namespace trainyard {
namespace {

class SigmoidGrad final : public ActivationGradOp {
 public:
  SigmoidGrad() : ActivationGradOp("y") {}
  std::string_view type() const override { return "SigmoidGrad"; }

 protected:
  int64_t flops_per_element() const override { return 3; }
};

class Sigmoid final : public ActivationOp {
 public:
  std::string_view type() const override { return "Sigmoid"; }
  void differentiate(GradientContext& c) const override {
    differentiate_activation(c, *sigmoid_grad_op(), c.output(0));
  }

 protected:
  int64_t flops_per_element() const override { return 10; }
};

}  // namespace

const Op* sigmoid_op() {
  static const Sigmoid op;
  return &op;
}
const Op* sigmoid_grad_op() {
  static const SigmoidGrad op;
  return &op;
}

}  // namespace trainyard
