#include "src/ops/parts.h"

#include <algorithm>
#include <map>
#include <string>

#include "src/base/check.h"
#include "src/ops/add.h"
#include "src/ops/batch_normalization_relu.h"
#include "src/ops/conv.h"
#include "src/ops/dropout.h"
#include "src/ops/gelu.h"
#include "src/ops/gemm.h"
#include "src/ops/layer_normalization.h"
#include "src/ops/relu.h"

namespace trainyard {
namespace {

using Ids = std::vector<TensorId>;

Node part(const Node& whole, const Op& op, Ids inputs, Ids outputs, Attributes attributes = {}) {
  return {whole.name,         &op,        std::move(attributes), std::move(inputs),
          std::move(outputs), whole.phase};
}

const Attributes& tanh_form() {
  static const Attributes attributes{{"approximate", std::string("tanh")}};
  return attributes;
}

std::vector<Node> gemm_gelu(const Node& n) {
  const TensorId y = n.outputs[0], pre = n.outputs[1] != kNoTensor ? n.outputs[1] : y;
  return {part(n, *gemm_op(), n.inputs, {pre}, n.attributes),
          part(n, *gelu_op(), {pre}, {y}, tanh_form())};
}

std::vector<Node> gelu_gemm_grad(const Node& n) {
  const TensorId dx = n.outputs[0];
  std::vector<Node> parts = {
      part(n, *gemm_grad_op(), {n.inputs.begin(), n.inputs.begin() + 3}, n.outputs, n.attributes)};
  if (dx != kNoTensor) {
    parts.push_back(part(n, *gelu_grad_op(), {n.inputs[3], dx}, {dx}, tanh_form()));
  }
  return parts;
}

std::vector<Node> conv_relu(const Node& n) {
  const TensorId y = n.outputs[0];
  return {part(n, *conv_op(), n.inputs, {y}, n.attributes), part(n, *relu_op(), {y}, {y})};
}

std::vector<Node> relu_conv_grad(const Node& n) {
  const TensorId x = n.inputs[0], w = n.inputs[1], dy = n.inputs[2], y = n.inputs[3];
  const TensorId dpre = n.outputs[3];
  return {part(n, *relu_grad_op(), {y, dy}, {dpre}),
          part(n, *conv_grad_op(), {x, w, dpre}, {n.outputs.begin(), n.outputs.end() - 1},
               n.attributes)};
}

/// skip is the last input, sum the last output.
std::vector<Node> skip_normalization(const Node& n, const Op& normalization) {
  const TensorId sum = n.outputs.back();
  Ids inputs(n.inputs.begin(), n.inputs.end() - 1);
  inputs[0] = sum;
  return {part(n, *add_op(), {n.inputs[0], n.inputs.back()}, {sum}),
          part(n, normalization, std::move(inputs), {n.outputs.begin(), n.outputs.end() - 1},
               n.attributes)};
}

std::vector<Node> skip_gradient(const Node& n, const Op& gradient) {
  const TensorId dx = n.outputs[0];
  return {part(n, gradient, {n.inputs.begin(), n.inputs.end() - 1}, n.outputs, n.attributes),
          part(n, *add_op(), {dx, n.inputs.back()}, {dx})};
}

/// The sum lies where g is wanted, or dx.
std::vector<Node> skip_batch_normalization_gradient(const Node& n) {
  const TensorId sum = n.outputs[3] != kNoTensor ? n.outputs[3] : n.outputs[0];
  Ids inputs(n.inputs.begin(), n.inputs.end() - 1);
  inputs[4] = sum;
  return {part(n, *add_op(), {n.inputs[4], n.inputs[7]}, {sum}),
          part(n, *batch_normalization_relu_grad_op(), std::move(inputs), n.outputs)};
}

/// As skip_normalization, with step behind skip. What is kept of skip lies in sum first.
std::vector<Node> dropout_normalization(const Node& n, const Op& normalization) {
  const TensorId sum = n.outputs.back(), step = n.inputs.back(), skip = n.inputs.end()[-2];
  Ids inputs(n.inputs.begin(), n.inputs.end() - 2);
  inputs[0] = sum;
  return {part(n, *dropout_op(), {skip, step}, {sum}, n.attributes),
          part(n, *add_op(), {n.inputs[0], sum}, {sum}),
          part(n, normalization, std::move(inputs), {n.outputs.begin(), n.outputs.end() - 1},
               n.attributes)};
}

/// As skip_gradient, which may have no skip here, with step behind it; dz is the last output.
std::vector<Node> dropout_gradient(const Node& n, const Op& gradient) {
  const TensorId dx = n.outputs[0], dz = n.outputs.back();
  const TensorId step = n.inputs.back(), skip = n.inputs.end()[-2];
  std::vector<Node> parts = {part(n, gradient, {n.inputs.begin(), n.inputs.end() - 2},
                                  {n.outputs.begin(), n.outputs.end() - 1}, n.attributes)};
  if (skip != kNoTensor) parts.push_back(part(n, *add_op(), {dx, skip}, {dx}));
  parts.push_back(part(n, *dropout_grad_op(), {dx, step}, {dz}, n.attributes));
  return parts;
}

using Parts = std::vector<Node> (*)(const Node&);
const std::map<std::string_view, Parts>& table() {
  static const std::map<std::string_view, Parts> parts = {
      {"GemmGelu", gemm_gelu},
      {"GeluGemmGrad", gelu_gemm_grad},
      {"ConvRelu", conv_relu},
      {"ReluConvGrad", relu_conv_grad},
      {"SkipLayerNormalization",
       [](const Node& n) { return skip_normalization(n, *layer_normalization_op()); }},
      {"SkipRMSNormalization",
       [](const Node& n) { return skip_normalization(n, *rms_normalization_op()); }},
      {"SkipLayerNormalizationGrad",
       [](const Node& n) { return skip_gradient(n, *layer_normalization_grad_op()); }},
      {"SkipRMSNormalizationGrad",
       [](const Node& n) { return skip_gradient(n, *rms_normalization_grad_op()); }},
      {"SkipBatchNormalizationReluGrad", skip_batch_normalization_gradient},
      {"DropoutSkipLayerNormalization",
       [](const Node& n) { return dropout_normalization(n, *layer_normalization_op()); }},
      {"DropoutSkipRMSNormalization",
       [](const Node& n) { return dropout_normalization(n, *rms_normalization_op()); }},
      {"DropoutSkipLayerNormalizationGrad",
       [](const Node& n) { return dropout_gradient(n, *layer_normalization_grad_op()); }},
      {"DropoutSkipRMSNormalizationGrad",
       [](const Node& n) { return dropout_gradient(n, *rms_normalization_grad_op()); }},
  };
  return parts;
}

}  // namespace

std::vector<Node> parts_of(const Node& node) {
  const auto it = table().find(node.op->type());
  return it == table().end() ? std::vector<Node>{} : it->second(node);
}

bool has_parts(std::string_view op_type) { return table().contains(op_type); }

}  // namespace trainyard
