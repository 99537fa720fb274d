#include "src/ops/layer_normalization.h"

#include "src/ops/dropout.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

bool is_rms(const Attributes& attributes) {
  return normalization_form(attributes) == NormalizationForm::kRms;
}

Shape normalized_shape(const Shape& x, int64_t axis) {
  return Shape(std::vector<int64_t>(x.dims().begin() + axis, x.dims().end()));
}

Shape statistics_shape(const Shape& x, int64_t axis) {
  std::vector<int64_t> dims = x.dims();
  for (size_t i = static_cast<size_t>(axis); i < dims.size(); ++i) dims[i] = 1;
  return Shape(std::move(dims));
}

// Does the checks common to all forward and gradient ops. x is input 0, scale input 1.
void check_common(OpChecks& check, const InferContext& c) {
  check.float_type(0).rank_at_least(0, 1).not_empty(0).same_dtype(1, 0);
  if (!check.ok()) return;
  const Shape& x = c.input(0).shape;
  check.int_in("axis", -1, -x.rank(), x.rank() - 1);
  const double epsilon = c.attributes().get_float("epsilon", 1e-5);
  check.require(epsilon > 0 && epsilon <= 1, "ATTRIBUTE_OUT_OF_RANGE", "epsilon",
                std::to_string(epsilon) + " is out of range, expected above 0, at most 1");
  if (!check.ok()) return;
  check.shape(1, normalized_shape(x, normalization_axis(c.attributes(), x)));
}

class LayerNormalization final : public Op {
 public:
  std::string_view type() const override { return "LayerNormalization"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "scale", "b"}, 2, {"axis", "epsilon"});
    check_common(check, c);
    check.same_dtype(2, 0).same_shape(2, 1);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    const TensorType statistics{
        statistics_shape(x.shape, normalization_axis(c.attributes(), x.shape)), x.dtype};
    return std::vector{x, statistics, statistics};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.output(1) != kNoTensor && c.output(2) != kNoTensor,
                    c.node().name + ": backward needs mean and inv_std_dev");
    const bool has_bias = c.node().inputs.size() > 2 && c.input(2) != kNoTensor;
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1),
                                      has_bias && c.needs_grad(2)};
    const auto grads =
        c.add("grad", *layer_normalization_grad_op(), c.node().attributes,
              {c.input(0), c.input(1), c.grad_output(0), c.output(2), c.output(1)}, wanted);
    for (int64_t i = 0; i < 3; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, 8);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {1, 2}}; }
};

class RmsNormalization final : public Op {
 public:
  std::string_view type() const override { return "RMSNormalization"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "scale"}, 2, {"axis", "epsilon"});
    check_common(check, c);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    return std::vector{
        x, TensorType{statistics_shape(x.shape, normalization_axis(c.attributes(), x.shape)),
                      x.dtype}};
  }

  void differentiate(GradientContext& c) const override {
    TRAINYARD_CHECK(c.output(1) != kNoTensor, c.node().name + ": backward needs inv_rms");
    const std::vector<bool> wanted = {c.needs_grad(0), c.needs_grad(1)};
    const auto grads = c.add("grad", *rms_normalization_grad_op(), c.node().attributes,
                             {c.input(0), c.input(1), c.grad_output(0), c.output(1)}, wanted);
    for (int64_t i = 0; i < 2; ++i) {
      if (wanted[static_cast<size_t>(i)]) c.set_grad(i, grads[static_cast<size_t>(i)]);
    }
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, 5);
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {1}}; }
};

// Does the checks common to all gradient ops. dy is input 2, inv_std_dev or inv_rms input 3, mean
// input 4.
void check_gradient(OpChecks& check, const InferContext& c) {
  check_common(check, c);
  check.same_dtype(2, 0).same_shape(2, 0);
  if (!check.ok()) return;
  const Shape& x = c.input(0).shape;
  const Shape statistics = statistics_shape(x, normalization_axis(c.attributes(), x));
  check.same_dtype(3, 0).shape(3, statistics);
  if (c.has_input(4)) check.same_dtype(4, 0).shape(4, statistics);
}

int64_t gradient_flops(NormalizationForm form) { return form == NormalizationForm::kRms ? 12 : 14; }

/// Implements both LayerNormalizationGrad and RMSNormalizationGrad.
class NormalizationGrad final : public Op {
 public:
  NormalizationGrad(std::string_view type, NormalizationForm form) : type_(type), form_(form) {}
  std::string_view type() const override { return type_; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    std::vector<std::string_view> names = {"x", "scale", "dy",
                                           has_mean() ? "inv_std_dev" : "inv_rms"};
    if (has_mean()) names.push_back("mean");
    const auto required = static_cast<int64_t>(names.size());
    OpChecks check(c, std::move(names), required, {"axis", "epsilon"});
    check_gradient(check, c);
    if (!check.ok()) return check.error();
    std::vector<TensorType> types = {c.input(0), c.input(1)};
    if (has_mean()) types.push_back(c.input(1));
    return types;
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, gradient_flops(form_));
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 2}};
  }

 private:
  bool has_mean() const { return form_ == NormalizationForm::kLayer; }

  std::string_view type_;
  NormalizationForm form_;
};

// Checks the attribute `form` of SkipNormalization and SkipNormalizationGrad.
void check_norm_form(OpChecks& check, const InferContext& c) {
  const std::string form = c.attributes().get_string("form", "layer");
  check.require(form == "layer" || form == "rms", "ATTRIBUTE_OUT_OF_RANGE", "form",
                "'" + form + "' is not supported, expected layer or rms");
}
void check_optional_dropout(OpChecks& check, const InferContext& c, int64_t step) {
  if (c.has_input(step)) return check_dropout(check, c, step);
  for (const std::string_view name : kDropoutAttributes) {
    check.require(c.attributes().find(name) == nullptr, "ATTRIBUTE_UNUSED", name,
                  "a dropout needs the input step");
  }
}

bool is_given(const Node& node, int64_t i) {
  const auto index = static_cast<size_t>(i);
  return index < node.inputs.size() && node.inputs[index] != kNoTensor;
}

class SkipNormalization final : public Op {
 public:
  std::string_view type() const override { return "SkipNormalization"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "scale", "b", "skip", "step"}, 2,
                   {"form", "axis", "epsilon", "ratio", "seed", "stream", "rank"});
    check.require(c.has_input(kSkip), "INPUT_COUNT_INVALID", "skip", "this input is required");
    check_norm_form(check, c);
    if (check.ok() && is_rms(c.attributes())) {
      check.require(!c.has_input(2), "INPUT_COUNT_INVALID", "b",
                    "the form rms does not take this input");
    }
    check_optional_dropout(check, c, kStep);
    check_common(check, c);
    check.same_dtype(2, 0).same_shape(2, 1).same_dtype(kSkip, 0).same_shape(kSkip, 0);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    const TensorType statistics{
        statistics_shape(x.shape, normalization_axis(c.attributes(), x.shape)), x.dtype};
    return std::vector{x, statistics, statistics, x};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node,
                            (is_rms(node.attributes) ? 6 : 9) + (is_given(node, kStep) ? 2 : 0));
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node& node) const override {
    // With dropout, `sum` holds Dropout(skip) until x is added (parts.h), so it may not share x's
    // memory.
    if (is_given(node, kStep)) return {{0, 0}, {0, kSkip}, {kSum, kSkip}};
    return {{0, 0}, {0, kSkip}, {kSum, 0}, {kSum, kSkip}};
  }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {1, 2}}; }

 private:
  static constexpr int64_t kSkip = 3, kStep = 4, kSum = 3;
};

class SkipNormalizationGrad final : public Op {
 public:
  std::string_view type() const override { return "SkipNormalizationGrad"; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    OpChecks check(c, {"x", "scale", "dy", "inv_std_dev", "mean", "skip", "step"}, 4,
                   {"form", "axis", "epsilon", "ratio", "seed", "stream", "rank"});
    check_norm_form(check, c);
    if (check.ok()) {
      const bool has_mean = !is_rms(c.attributes());
      check.require(c.has_input(kMean) == has_mean, "INPUT_COUNT_INVALID", "mean",
                    has_mean ? "this input is required" : "the form rms does not take this input");
    }
    check.require(c.has_input(kSkip) || c.has_input(kStep), "INPUT_COUNT_INVALID", "skip",
                  "this input is required where there is no dropout");
    check_gradient(check, c);
    check.same_dtype(kSkip, 0).same_shape(kSkip, 0);
    check_optional_dropout(check, c, kStep);
    if (!check.ok()) return check.error();
    return std::vector{c.input(0), c.input(1), c.input(1), c.input(0)};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(
        *this, graph, node,
        gradient_flops(normalization_form(node.attributes)) + 1 + (is_given(node, kStep) ? 2 : 0));
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node& node) const override {
    if (!is_given(node, kStep)) return {{0, 2}};
    return {{0, 2}, {kDz, 2}, {kDz, kSkip}, {kDz, 0}};
  }

 private:
  static constexpr int64_t kMean = 4, kSkip = 5, kStep = 6, kDz = 3;
};

}  // namespace

int64_t normalization_axis(const Attributes& attributes, const Shape& x) {
  const int64_t axis = attributes.get_int("axis", -1);
  return axis < 0 ? axis + x.rank() : axis;
}

NormalizationForm normalization_form(const Attributes& attributes) {
  return attributes.get_string("form", "layer") == "rms" ? NormalizationForm::kRms
                                                         : NormalizationForm::kLayer;
}

const Op* layer_normalization_op() {
  static const LayerNormalization op;
  return &op;
}
const Op* layer_normalization_grad_op() {
  static const NormalizationGrad op("LayerNormalizationGrad", NormalizationForm::kLayer);
  return &op;
}
const Op* rms_normalization_op() {
  static const RmsNormalization op;
  return &op;
}
const Op* rms_normalization_grad_op() {
  static const NormalizationGrad op("RMSNormalizationGrad", NormalizationForm::kRms);
  return &op;
}
const Op* skip_normalization_op() {
  static const SkipNormalization op;
  return &op;
}
const Op* skip_normalization_grad_op() {
  static const SkipNormalizationGrad op;
  return &op;
}

}  // namespace trainyard
