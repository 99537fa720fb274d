#include "src/ops/tanh.h"

#include "src/ops/activation.h"

namespace trainyard {
namespace {

class TanhGrad final : public ActivationGradOp {
 public:
  TanhGrad() : ActivationGradOp("y") {}
  std::string_view type() const override { return "TanhGrad"; }

 protected:
  int64_t flops_per_element() const override { return 3; }
};

class Tanh final : public ActivationOp {
 public:
  std::string_view type() const override { return "Tanh"; }
  void differentiate(GradientContext& c) const override {
    differentiate_activation(c, *tanh_grad_op(), c.output(0));
  }

 protected:
  int64_t flops_per_element() const override { return 10; }
};

}  // namespace

const Op* tanh_op() {
  static const Tanh op;
  return &op;
}
const Op* tanh_grad_op() {
  static const TanhGrad op;
  return &op;
}

}  // namespace trainyard
