#include "src/ops/unary.h"

#include <cmath>
#include <deque>

#include "src/ops/activation.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

enum class Saved : uint8_t { kX, kY };

struct UnaryRow {
  std::string_view type, grad_type;
  Saved saved = Saved::kX;
  int64_t flops = 1;  // of an element, for the forecast
  std::vector<std::string_view> attributes = {};
};

#define TRAINYARD_TYPES(name) name, name "Grad"
const std::vector<UnaryRow>& unary_rows() {
  static const std::vector<UnaryRow> table = {
      {TRAINYARD_TYPES("LeakyRelu"), Saved::kX, 2, {"alpha"}},
      {TRAINYARD_TYPES("ThresholdedRelu"), Saved::kX, 1, {"alpha"}},
      {TRAINYARD_TYPES("Elu"), Saved::kX, 12, {"alpha"}},
      {TRAINYARD_TYPES("Selu"), Saved::kX, 13, {"alpha", "gamma"}},
      {TRAINYARD_TYPES("Celu"), Saved::kX, 13, {"alpha"}},
      {TRAINYARD_TYPES("Softplus"), Saved::kX, 25},
      {TRAINYARD_TYPES("Softsign"), Saved::kX, 3},
      {TRAINYARD_TYPES("HardSigmoid"), Saved::kX, 3, {"alpha", "beta"}},
      {TRAINYARD_TYPES("HardSwish"), Saved::kX, 4},
      {TRAINYARD_TYPES("Swish"), Saved::kX, 15, {"alpha"}},
      {TRAINYARD_TYPES("Mish"), Saved::kX, 20},
      {TRAINYARD_TYPES("Neg"), Saved::kY, 1},
      {TRAINYARD_TYPES("Abs"), Saved::kX, 1},
      {TRAINYARD_TYPES("Exp"), Saved::kY, 12},
      {TRAINYARD_TYPES("Log"), Saved::kX, 20},
      {TRAINYARD_TYPES("Sqrt"), Saved::kY, 1},
      {TRAINYARD_TYPES("Reciprocal"), Saved::kY, 1},
      {TRAINYARD_TYPES("Clip"), Saved::kX, 2, {"min", "max"}},
  };
  return table;
}
#undef TRAINYARD_TYPES

void check_attributes(OpChecks& check, const InferContext& c, const UnaryRow& row) {
  for (const std::string_view name : row.attributes) {
    check.require(std::isfinite(c.attributes().get_float(name, 0)), "ATTRIBUTE_OUT_OF_RANGE", name,
                  "is not a finite number");
  }
  if (row.type == "Celu") {
    check.require(c.attributes().get_float("alpha", 1) != 0, "ATTRIBUTE_OUT_OF_RANGE", "alpha",
                  "is 0, expected any other number");
  }
  if (row.type == "Clip" && c.attributes().find("min") != nullptr &&
      c.attributes().find("max") != nullptr) {
    check.require(c.attributes().get_float("min", 0) <= c.attributes().get_float("max", 0),
                  "ATTRIBUTE_OUT_OF_RANGE", "min", "is larger than max");
  }
}

class UnaryGrad final : public ActivationGradOp {
 public:
  explicit UnaryGrad(const UnaryRow& row)
      : ActivationGradOp(row.saved == Saved::kX ? "x" : "y"), row_(row) {}
  std::string_view type() const override { return row_.grad_type; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {row_.saved == Saved::kX ? "x" : "y", "dy"}, 2, row_.attributes);
    check.float_type(0).same_dtype(1, 0).same_shape(1, 0);
    check_attributes(check, c, row_);
    if (!check.ok()) return check.error();
    return std::vector{c.input(1)};
  }

 protected:
  int64_t flops_per_element() const override { return row_.flops + 2; }

 private:
  const UnaryRow& row_;
};

class Unary final : public ActivationOp {
 public:
  Unary(const UnaryRow& row, const Op& grad) : row_(row), grad_(grad) {}
  std::string_view type() const override { return row_.type; }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x"}, 1, row_.attributes);
    check.float_type(0);
    check_attributes(check, c, row_);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0)};
  }
  void differentiate(GradientContext& c) const override {
    differentiate_activation(c, grad_, row_.saved == Saved::kX ? c.input(0) : c.output(0));
  }

 protected:
  int64_t flops_per_element() const override { return row_.flops; }

 private:
  const UnaryRow& row_;
  const Op& grad_;
};

}  // namespace

std::span<const Op* const> unary_ops() {
  static const std::vector<const Op*> ops = [] {
    static std::deque<UnaryGrad> grads;  // addresses stay
    static std::deque<Unary> forwards;
    std::vector<const Op*> all;
    for (const UnaryRow& row : unary_rows()) {
      all.push_back(&grads.emplace_back(row));
      all.push_back(&forwards.emplace_back(row, grads.back()));
    }
    return all;
  }();
  return ops;
}

}  // namespace trainyard
