// src/ops/activation.h: what the elementwise activations share. Each one has its own pair of files
// (relu.h, sigmoid.h, ...) that names it and says what its gradient reads.
#pragma once

#include "src/graph/op.h"

namespace trainyard {

/// What has one number for each of its inputs' takes hidden units as it takes rows: all inputs are
/// kOwn, or all are kUnits, and so are the outputs.
std::optional<std::vector<Spread>> spread_elementwise(const std::vector<Spread>& inputs,
                                                      size_t outputs);

/// y = f(x), same type and shape; no attributes unless the op says so. `flops_per_element` is an
/// estimate for the forecast.
class ActivationOp : public Op {
 public:
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    return spread_elementwise(inputs, outputs);
  }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override;
  Cost cost(const Graph& graph, const Node& node) const override;
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 0}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }

 protected:
  virtual int64_t flops_per_element() const = 0;
};

/// dx = df(saved, dy); `saved` is y or x, as the activation prefers.
class ActivationGradOp : public Op {
 public:
  explicit ActivationGradOp(std::string_view saved_name) : saved_name_(saved_name) {}
  std::optional<std::vector<Spread>> spread(const std::vector<Spread>& inputs,
                                            size_t outputs) const override {
    return spread_elementwise(inputs, outputs);
  }
  Result<std::vector<TensorType>> infer(const InferContext& c) const override;
  Cost cost(const Graph& graph, const Node& node) const override;
  std::vector<std::pair<int64_t, int64_t>> may_alias(const Node&) const override {
    return {{0, 1}, {0, 0}};
  }
  LayoutRule layout_rule() const override { return LayoutRule::kFollow; }

 protected:
  virtual int64_t flops_per_element() const = 0;

 private:
  std::string_view saved_name_;
};

/// Appends "<node>/grad" with (saved, dy) and hands it to input 0.
void differentiate_activation(GradientContext& c, const Op& grad_op, TensorId saved);

}  // namespace trainyard
