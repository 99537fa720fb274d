#include "src/ops/layer_normalization.h"

#include "src/ops/dropout.h"
#include "src/ops/shape_helpers.h"

namespace trainyard {
namespace {

Shape normalized_shape(const Shape& x, int64_t axis) {
  return Shape(std::vector<int64_t>(x.dims().begin() + axis, x.dims().end()));
}

Shape statistics_shape(const Shape& x, int64_t axis) {
  std::vector<int64_t> dims = x.dims();
  for (size_t i = static_cast<size_t>(axis); i < dims.size(); ++i) dims[i] = 1;
  return Shape(std::move(dims));
}

// What forward and gradient refuse alike: x is input 0, scale input 1.
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

/// Attributes of a normalisation, and of a dropout beside it.
std::vector<std::string_view> attribute_names(bool has_dropout) {
  std::vector<std::string_view> names = {"axis", "epsilon"};
  if (has_dropout) names.insert(names.end(), {"ratio", "seed", "stream", "rank"});
  return names;
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
  std::vector<std::pair<int64_t, int64_t>> may_alias() const override { return {{0, 0}}; }
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
  std::vector<std::pair<int64_t, int64_t>> may_alias() const override { return {{0, 0}}; }
  PrecisionRule precision_rule() const override { return {.f32_outputs = {1}}; }
};

/// Both gradients: `inputs` is 5 with a mean, 4 without; then come skip and step.
class NormalizationGrad final : public Op {
 public:
  NormalizationGrad(std::string_view type, bool has_mean, bool has_skip = false,
                    bool has_dropout = false)
      : type_(type), has_mean_(has_mean), has_skip_(has_skip), has_dropout_(has_dropout) {}
  std::string_view type() const override { return type_; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    std::vector<std::string_view> names = {"x", "scale", "dy",
                                           has_mean_ ? "inv_std_dev" : "inv_rms"};
    if (has_mean_) names.push_back("mean");
    const auto skip = static_cast<int64_t>(names.size());
    if (has_skip_) names.push_back("skip");
    if (has_dropout_) names.push_back("step");
    // With a dropout the sum may have no other way, and so no skip.
    const int64_t required = has_skip_ && !has_dropout_ ? skip + 1 : skip;
    OpChecks check(c, std::move(names), required, attribute_names(has_dropout_));
    check_common(check, c);
    check.same_dtype(2, 0).same_shape(2, 0);
    if (!check.ok()) return check.error();
    const Shape& x = c.input(0).shape;
    const Shape statistics = statistics_shape(x, normalization_axis(c.attributes(), x));
    check.same_dtype(3, 0).shape(3, statistics);
    if (has_mean_) check.same_dtype(4, 0).shape(4, statistics);
    if (has_skip_) check.same_dtype(skip, 0).same_shape(skip, 0);
    if (has_dropout_) {
      check.require(c.has_input(skip + 1), "INPUT_COUNT", "step", "this input is required");
      check_dropout(check, c, skip + 1);
    }
    if (!check.ok()) return check.error();
    std::vector<TensorType> types = {c.input(0), c.input(1)};
    if (has_mean_) types.push_back(c.input(1));
    if (has_dropout_) types.push_back(c.input(0));
    return types;
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node,
                            (has_mean_ ? 14 : 12) + (has_skip_ ? 1 : 0) + (has_dropout_ ? 2 : 0));
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias() const override {
    if (!has_dropout_) return {{0, 2}};
    const int64_t dz = has_mean_ ? 3 : 2, skip = has_mean_ ? 5 : 4;
    return {{0, 2}, {dz, 2}, {dz, skip}, {dz, 0}};
  }

 private:
  std::string_view type_;
  bool has_mean_, has_skip_, has_dropout_;
};

/// The forward op of a sum, and its gradient: as the op without, with `skip` behind its inputs.
class SkipNormalization final : public Op {
 public:
  SkipNormalization(std::string_view type, bool has_mean, bool has_dropout = false)
      : type_(type), has_mean_(has_mean), has_dropout_(has_dropout) {}
  std::string_view type() const override { return type_; }

  Result<std::vector<TensorType>> infer(const InferContext& c) const override {
    std::vector<std::string_view> names = {"x", "scale"};
    if (has_mean_) names.push_back("b");
    names.push_back("skip");
    if (has_dropout_) names.push_back("step");
    OpChecks check(c, std::move(names), 2, attribute_names(has_dropout_));
    check.require(c.has_input(skip()), "INPUT_COUNT", "skip", "this input is required");
    if (has_dropout_) {
      check.require(c.has_input(skip() + 1), "INPUT_COUNT", "step", "this input is required");
      check_dropout(check, c, skip() + 1);
    }
    check_common(check, c);
    if (has_mean_) check.same_dtype(2, 0).same_shape(2, 1);
    check.same_dtype(skip(), 0).same_shape(skip(), 0);
    if (!check.ok()) return check.error();
    const TensorType& x = c.input(0);
    const TensorType statistics{
        statistics_shape(x.shape, normalization_axis(c.attributes(), x.shape)), x.dtype};
    if (!has_mean_) return std::vector{x, statistics, x};
    return std::vector{x, statistics, statistics, x};
  }

  Cost cost(const Graph& graph, const Node& node) const override {
    return cost_per_element(*this, graph, node, (has_mean_ ? 9 : 6) + (has_dropout_ ? 2 : 0));
  }
  std::vector<std::pair<int64_t, int64_t>> may_alias() const override {
    const int64_t sum = has_mean_ ? 3 : 2;
    // What is kept of skip lies in sum before x is added to it (parts.h).
    if (has_dropout_) return {{0, 0}, {0, skip()}, {sum, skip()}};
    return {{0, 0}, {0, skip()}, {sum, 0}, {sum, skip()}};
  }
  PrecisionRule precision_rule() const override {
    return {.f32_outputs = has_mean_ ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1}};
  }

 private:
  int64_t skip() const { return has_mean_ ? 3 : 2; }

  std::string_view type_;
  bool has_mean_, has_dropout_;
};

}  // namespace

int64_t normalization_axis(const Attributes& attributes, const Shape& x) {
  const int64_t axis = attributes.get_int("axis", -1);
  return axis < 0 ? axis + x.rank() : axis;
}

const Op* layer_normalization_op() {
  static const LayerNormalization op;
  return &op;
}
const Op* layer_normalization_grad_op() {
  static const NormalizationGrad op("LayerNormalizationGrad", /*has_mean=*/true);
  return &op;
}
const Op* rms_normalization_op() {
  static const RmsNormalization op;
  return &op;
}
const Op* rms_normalization_grad_op() {
  static const NormalizationGrad op("RMSNormalizationGrad", /*has_mean=*/false);
  return &op;
}
const Op* skip_layer_normalization_op() {
  static const SkipNormalization op("SkipLayerNormalization", /*has_mean=*/true);
  return &op;
}
const Op* skip_layer_normalization_grad_op() {
  static const NormalizationGrad op("SkipLayerNormalizationGrad", /*has_mean=*/true,
                                    /*has_skip=*/true);
  return &op;
}
const Op* skip_rms_normalization_op() {
  static const SkipNormalization op("SkipRMSNormalization", /*has_mean=*/false);
  return &op;
}
const Op* skip_rms_normalization_grad_op() {
  static const NormalizationGrad op("SkipRMSNormalizationGrad", /*has_mean=*/false,
                                    /*has_skip=*/true);
  return &op;
}
const Op* dropout_skip_layer_normalization_op() {
  static const SkipNormalization op("DropoutSkipLayerNormalization", /*has_mean=*/true,
                                    /*has_dropout=*/true);
  return &op;
}
const Op* dropout_skip_layer_normalization_grad_op() {
  static const NormalizationGrad op("DropoutSkipLayerNormalizationGrad", /*has_mean=*/true,
                                    /*has_skip=*/true, /*has_dropout=*/true);
  return &op;
}
const Op* dropout_skip_rms_normalization_op() {
  static const SkipNormalization op("DropoutSkipRMSNormalization", /*has_mean=*/false,
                                    /*has_dropout=*/true);
  return &op;
}
const Op* dropout_skip_rms_normalization_grad_op() {
  static const NormalizationGrad op("DropoutSkipRMSNormalizationGrad", /*has_mean=*/false,
                                    /*has_skip=*/true, /*has_dropout=*/true);
  return &op;
}

}  // namespace trainyard
