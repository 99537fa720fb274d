#include "src/ops/parts.h"

#include <algorithm>
#include <map>
#include <string>

#include "src/base/check.h"
#include "src/ops/activation.h"
#include "src/ops/add.h"
#include "src/ops/batch_normalization_relu.h"
#include "src/ops/conv.h"
#include "src/ops/dropout.h"
#include "src/ops/gemm.h"
#include "src/ops/layer_normalization.h"

namespace trainyard {
namespace {

using Ids = std::vector<TensorId>;

Node part(const Node& whole, const Op& op, Ids inputs, Ids outputs, Attributes attributes = {}) {
  return {whole.name,         &op,        std::move(attributes), std::move(inputs),
          std::move(outputs), whole.phase};
}

Attributes form_of(const Node& n) {
  return {{kApproximate, std::string(has_tanh_form(n) ? "tanh" : "none")}};
}
/// Returns the attributes of the product of a node with Gelu.
Attributes product_of(const Node& n) {
  Attributes attributes;
  for (const auto& [name, value] : n.attributes.items()) {
    if (name != kApproximate) attributes.set(name, value);
  }
  return attributes;
}

std::vector<Node> gemm_gelu(const Node& n) {
  const TensorId y = n.outputs[0], pre = n.outputs[1] != kNoTensor ? n.outputs[1] : y;
  return {part(n, *gemm_op(), n.inputs, {pre}, product_of(n)),
          part(n, *gelu_op(), {pre}, {y}, form_of(n))};
}

std::vector<Node> gelu_gemm_grad(const Node& n) {
  const TensorId dx = n.outputs[0];
  std::vector<Node> parts = {
      part(n, *gemm_grad_op(), {n.inputs.begin(), n.inputs.begin() + 3}, n.outputs, product_of(n))};
  if (dx != kNoTensor) {
    parts.push_back(part(n, *gelu_grad_op(), {n.inputs[3], dx}, {dx}, form_of(n)));
  }
  return parts;
}

std::vector<Node> gemm_relu(const Node& n) {
  const TensorId y = n.outputs[0];
  return {part(n, *gemm_op(), n.inputs, {y}, n.attributes), part(n, *relu_op(), {y}, {y})};
}

std::vector<Node> relu_gemm_grad(const Node& n) {
  const TensorId x = n.inputs[0], dx = n.outputs[0];
  std::vector<Node> parts = {
      part(n, *gemm_grad_op(), {n.inputs.begin(), n.inputs.begin() + 3}, n.outputs, n.attributes)};
  if (dx != kNoTensor) parts.push_back(part(n, *relu_grad_op(), {x, dx}, {dx}));
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

bool has_rms_form(const Node& n) {
  return normalization_form(n.attributes) == NormalizationForm::kRms;
}
TensorId id_at(const Ids& ids, size_t i) { return i < ids.size() ? ids[i] : kNoTensor; }

std::vector<Node> skip_normalization(const Node& n) {
  const TensorId x = n.inputs[0], scale = n.inputs[1], b = n.inputs[2], skip = n.inputs[3];
  const TensorId step = id_at(n.inputs, 4);
  const TensorId y = n.outputs[0], mean = n.outputs[1], inv = n.outputs[2], sum = n.outputs[3];
  std::vector<Node> parts;
  if (step == kNoTensor) {
    parts.push_back(part(n, *add_op(), {x, skip}, {sum}));
  } else {  // `sum` first holds Dropout(skip), then x is added to it
    parts.push_back(part(n, *dropout_op(), {skip, step}, {sum}, n.attributes));
    parts.push_back(part(n, *add_op(), {x, sum}, {sum}));
  }
  parts.push_back(
      has_rms_form(n)
          ? part(n, *rms_normalization_op(), {sum, scale}, {y, inv}, n.attributes)
          : part(n, *layer_normalization_op(), {sum, scale, b}, {y, mean, inv}, n.attributes));
  return parts;
}

std::vector<Node> skip_normalization_gradient(const Node& n) {
  const TensorId sum = n.inputs[0], scale = n.inputs[1], dy = n.inputs[2], inv = n.inputs[3];
  const TensorId mean = n.inputs[4], skip = n.inputs[5], step = id_at(n.inputs, 6);
  const TensorId dx = n.outputs[0], dscale = n.outputs[1], db = n.outputs[2], dz = n.outputs[3];
  std::vector<Node> parts = {
      has_rms_form(n)
          ? part(n, *rms_normalization_grad_op(), {sum, scale, dy, inv}, {dx, dscale}, n.attributes)
          : part(n, *layer_normalization_grad_op(), {sum, scale, dy, inv, mean}, {dx, dscale, db},
                 n.attributes)};
  if (skip != kNoTensor) parts.push_back(part(n, *add_op(), {dx, skip}, {dx}));
  if (step != kNoTensor) {
    parts.push_back(part(n, *dropout_grad_op(), {dx, step}, {dz}, n.attributes));
  }
  return parts;
}

/// The sum dy + skip is stored in g if that is wanted, else in dx.
std::vector<Node> skip_batch_normalization_gradient(const Node& n) {
  const TensorId sum = n.outputs[3] != kNoTensor ? n.outputs[3] : n.outputs[0];
  Ids inputs(n.inputs.begin(), n.inputs.end() - 1);
  inputs[4] = sum;
  return {part(n, *add_op(), {n.inputs[4], n.inputs[7]}, {sum}),
          part(n, *batch_normalization_relu_grad_op(), std::move(inputs), n.outputs)};
}

using Parts = std::vector<Node> (*)(const Node&);
const std::map<std::string_view, Parts>& table() {
  static const std::map<std::string_view, Parts> parts = {
      {"GemmGelu", gemm_gelu},
      {"GeluGemmGrad", gelu_gemm_grad},
      {"GemmRelu", gemm_relu},
      {"ReluGemmGrad", relu_gemm_grad},
      {"ConvRelu", conv_relu},
      {"ReluConvGrad", relu_conv_grad},
      {"SkipNormalization", skip_normalization},
      {"SkipNormalizationGrad", skip_normalization_gradient},
      {"SkipBatchNormalizationReluGrad", skip_batch_normalization_gradient},
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
