#include "src/ops/gelu.h"

#include "src/base/text.h"
#include "src/ops/activation.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

void check_approximate(OpChecks& check, const InferContext& c) {
  if (!check.ok()) return;
  const std::string value = c.attributes().get_string("approximate", "none");
  check.require(value == "none" || value == "tanh", "ATTRIBUTE_OUT_OF_RANGE", "approximate",
                quoted_value(value) + " is not known, expected 'none' or 'tanh'");
}

class GeluGrad final : public ActivationGradOp {
 public:
  GeluGrad() : ActivationGradOp("x") {}
  std::string_view type() const override { return "GeluGrad"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "dy"}, 2, {"approximate"});
    check.float_type(0).same_dtype(1, 0).same_shape(1, 0);
    check_approximate(check, c);
    if (!check.ok()) return check.error();
    return std::vector{c.input(1)};
  }

 protected:
  int64_t flops_per_element() const override { return 20; }
};

class Gelu final : public ActivationOp {
 public:
  std::string_view type() const override { return "Gelu"; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, {"approximate"});
    check.float_type(0);
    check_approximate(check, c);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  void differentiate(GradientContext& c) const override {
    differentiate_activation(c, *gelu_grad_op(), c.input(0));
  }

 protected:
  int64_t flops_per_element() const override { return 15; }
};

}  // namespace

const Op* gelu_op() {
  static const Gelu op;
  return &op;
}
const Op* gelu_grad_op() {
  static const GeluGrad op;
  return &op;
}

}  // namespace trainyard
