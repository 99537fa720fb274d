#include <algorithm>
#include <cmath>

#include "src/base/philox.h"
#include "src/graph/op.h"
#include "src/models/layer.h"
#include "src/models/lora.h"

namespace trainyard {

namespace {

// Rewrites an error of an op's infer so that it names the layer as the user knows it. The op's
// message is "<node>: <attribute or input>: ..."; the prefix is dropped, since `where` has the
// node's name.
Error name_layer(const ResolvedLayer& layer, Error e) {
  const std::string prefix = layer.name + ": ";
  if (e.message.starts_with(prefix)) e.message.erase(0, prefix.size());
  std::string field = layer.path;
  if (!e.violations.empty()) {
    const std::string& name = e.violations.front().field;
    const auto known = std::ranges::find(layer.kind->attributes, name, &AttributeRule::name);
    if (known != layer.kind->attributes.end()) {
      field += "." + std::string(layer.kind->field) + "." + name;
    }
  }
  e.violations = {{std::move(field), e.message}};
  e.message = layer.where + ": " + e.message;
  return e;
}

}  // namespace

const std::vector<LayerKind>& layer_kinds() {
  static const std::vector<LayerKind> kinds = [] {
    std::vector<LayerKind> all;
    for (auto family :
         {dense_layers, image_layers, elementwise_layers, normalization_layers, shape_layers,
          sequence_layers, rotary_layers, text_layers, category_layers, arithmetic_layers}) {
      std::ranges::move(family(), std::back_inserter(all));
    }
    return all;
  }();
  return kinds;
}

const LayerKind* find_layer_kind(std::string_view op) {
  const auto it = std::ranges::find(layer_kinds(), op, &LayerKind::op);
  return it == layer_kinds().end() ? nullptr : &*it;
}

TensorId LayerBuilder::add_tensor(std::string name, Shape shape, DType dtype, Role role,
                                  Initializer initializer) {
  TensorInfo info;
  info.name = std::move(name);
  info.type = {std::move(shape), dtype};
  info.role = role;
  info.initializer = initializer;
  return model_.graph.add_tensor(std::move(info));
}

Result<TensorId> LayerBuilder::add_parameter(const ResolvedLayer& layer, std::string_view suffix,
                                             Shape shape, Initializer initializer) {
  if (!shape.fits()) {
    return shape_error(layer, "its " + std::string(suffix) + " would have shape " +
                                  shape.to_string() + ", more than " +
                                  std::to_string(Shape::kElementsMax) + " elements");
  }
  return add_tensor(layer.name + "." + std::string(suffix), std::move(shape), options_.dtype,
                    Role::kParameter, initializer);
}

Result<TensorId> LayerBuilder::add_fan_in_parameter(const ResolvedLayer& layer,
                                                    std::string_view suffix, Shape shape,
                                                    int64_t fan_in) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  return add_parameter(layer, suffix, std::move(shape),
                       {Initializer::Kind::kUniform, -bound, bound});
}

Result<LayerBuilder::Weights> LayerBuilder::add_weights(const ResolvedLayer& layer, Shape shape,
                                                        int64_t units, int64_t fan_in,
                                                        int64_t fan_out) {
  const std::string initializer = layer.attributes.get_string("initializer", "uniform");
  const double std = layer.attributes.get_float("initializer_std", 0);
  if (initializer == "normal" && std == 0) {
    return required_error(layer, "initializer_std", "is required with initializer: normal");
  }
  if (initializer != "normal" && std != 0) {
    Error e = required_error(layer, "initializer_std",
                             "has no effect here; remove it or choose initializer: normal");
    e.reason = "FIELD_UNUSED";
    return e;
  }
  const bool has_bias = layer.attributes.get_int("bias", 1) != 0;
  Weights w;
  if (initializer == "uniform") {
    ASSIGN_OR_RETURN(w.weight, add_fan_in_parameter(layer, "weight", std::move(shape), fan_in));
    if (has_bias) {
      ASSIGN_OR_RETURN(w.bias, add_fan_in_parameter(layer, "bias", Shape{units}, fan_in));
    }
    return w;
  }
  const double deviation =
      initializer == "normal" ? std : std::sqrt(2.0 / static_cast<double>(fan_out));
  ASSIGN_OR_RETURN(w.weight, add_parameter(layer, "weight", std::move(shape),
                                           {Initializer::Kind::kNormal, 0, deviation}));
  if (has_bias) w.bias = add_constant(layer, "bias", units, Role::kParameter, 0);
  return w;
}

Result<TensorId> LayerBuilder::add_product(const ResolvedLayer& layer, const std::string& name,
                                           TensorId x, const Weights& w) {
  if (!w.tied) {
    model_.products.push_back(layer.name);
    if (is_adapted(layer.name)) return add_lora(layer, name, x, w);
  }
  return add_node(layer, name, "Gemm", {{"transB", int64_t{1}}}, with_bias(x, w.weight, w.bias));
}

bool LayerBuilder::is_adapted(const std::string& layer) const {
  return options_.lora.rank > 0 && std::ranges::any_of(options_.lora.targets, [&](const auto& t) {
           return is_lora_target(t, layer, is_last_);
         });
}

// Adds nodes for W x + b + scale * B A x. The scale multiplies A x, [N, rank], which is the
// smallest of the operands.
Result<TensorId> LayerBuilder::add_lora(const ResolvedLayer& layer, const std::string& name,
                                        TensorId x, const Weights& w) {
  const LoraSpec& lora = options_.lora;
  const int64_t outputs = shape(w.weight)[0], inputs = shape(w.weight)[1];
  if (const int64_t rank_max = std::min(outputs, inputs); lora.rank > rank_max) {
    return field_error("FIELD_OUT_OF_RANGE", "recipe.lora.rank",
                       std::to_string(lora.rank) + " is larger than the smaller side of " +
                           layer.name + ".weight " + shape(w.weight).to_string() +
                           ", expected 1.." + std::to_string(rank_max));
  }
  const Attributes product = {{"transB", int64_t{1}}};
  ASSIGN_OR_RETURN(const TensorId base, add_node(layer, name + "/base", "Gemm", product,
                                                 with_bias(x, w.weight, w.bias)));
  TensorId u = x;
  if (options_.training && lora.dropout > 0) {
    const std::string dropout = name + "/lora_dropout";
    ASSIGN_OR_RETURN(u, add_node(layer, dropout, "Dropout",
                                 {{"ratio", lora.dropout},
                                  {"seed", static_cast<int64_t>(options_.seed)},
                                  {"stream", int64_t{stream_of(dropout)}}},
                                 {u, step()}));
  }
  ASSIGN_OR_RETURN(const TensorId a,
                   add_fan_in_parameter(layer, kLoraA.substr(1), Shape{lora.rank, inputs}, inputs));
  ASSIGN_OR_RETURN(const TensorId b,
                   add_parameter(layer, kLoraB.substr(1), Shape{outputs, lora.rank},
                                 {Initializer::Kind::kConstant, 0, 0}));
  ASSIGN_OR_RETURN(u, add_node(layer, name + "/lora_A", "Gemm", product, {u, a}));
  if (const double scale = lora_scale(lora); scale != 1) {
    ASSIGN_OR_RETURN(const TensorId factor,
                     add_node(layer, name + "/lora_scale", "ConstantOfShape",
                              {{"shape", std::vector<int64_t>{1, 1}},
                               {"value", scale},
                               {"dtype", std::string(name_of(options_.dtype))}},
                              {}));
    ASSIGN_OR_RETURN(u, add_node(layer, name + "/lora_scaled", "Mul", {}, {u, factor}));
  }
  ASSIGN_OR_RETURN(u, add_node(layer, name + "/lora_B", "Gemm", product, {u, b}));
  return add_node(layer, name, "Add", {}, {base, u});
}

TensorId LayerBuilder::add_constant(const ResolvedLayer& layer, std::string_view suffix,
                                    int64_t size, Role role, double value) {
  return add_tensor(layer.name + "." + std::string(suffix), Shape{size}, options_.dtype, role,
                    {Initializer::Kind::kConstant, value, 0});
}

Result<TensorId> LayerBuilder::add_node(const ResolvedLayer& layer, std::string name,
                                        std::string_view op, Attributes attributes,
                                        std::vector<TensorId> inputs,
                                        std::vector<std::string> saved) {
  std::vector<std::string> outputs = {name};
  for (const std::string& s : saved) outputs.push_back(s.empty() ? "" : name + "." + s);
  auto node = model_.graph.add_node(std::move(name), get_op(op), std::move(attributes),
                                    std::move(inputs), std::move(outputs));
  if (!node.ok()) return name_layer(layer, std::move(node).error());
  return model_.graph.node(*node).outputs[0];
}

Result<std::vector<TensorId>> LayerBuilder::add_node_with_outputs(const ResolvedLayer& layer,
                                                                  std::string_view op,
                                                                  Attributes attributes,
                                                                  std::vector<TensorId> inputs,
                                                                  int64_t count) {
  std::vector<std::string> more;
  for (int64_t i = 1; i < count; ++i) more.push_back(std::to_string(i));
  ASSIGN_OR_RETURN(const TensorId first, add_node(layer, layer.name, op, std::move(attributes),
                                                  std::move(inputs), std::move(more)));
  return model_.graph.node(model_.graph.tensor(first).producer).outputs;
}

bool LayerBuilder::has_batch(TensorId id) {
  if (id == kNoTensor) return false;
  if (const auto known = has_batch_.find(id); known != has_batch_.end()) return known->second;
  const NodeId producer = model_.graph.tensor(id).producer;
  bool batch = id == model_.input || id == model_.positions;
  if (producer != kNoNode) {
    const std::vector<TensorId>& inputs = model_.graph.node(producer).inputs;
    batch = std::ranges::any_of(inputs, [this](TensorId input) { return has_batch(input); });
  }
  return has_batch_[id] = batch;
}

TensorId LayerBuilder::step() {
  if (model_.step == kNoTensor) {
    model_.step = add_tensor("step", Shape{1}, DType::kI64, Role::kInput, {});
  }
  return model_.step;
}

TensorId LayerBuilder::positions() {
  const bool has_places = interface_.documents || options_.generation.capacity > 0;
  if (model_.positions == kNoTensor && has_places) {
    model_.positions =
        add_tensor("input/positions", shape(model_.input), DType::kI32, Role::kInput, {});
  }
  return model_.positions;
}

Error LayerBuilder::shape_error(const ResolvedLayer& layer, const std::string& description) {
  Error e = field_error("SHAPE_MISMATCH", layer.path, description);
  e.message = layer.where + ": " + description;
  return e;
}

Error LayerBuilder::required_error(const ResolvedLayer& layer, std::string_view attribute,
                                   const std::string& description) {
  const std::string name(attribute);
  Error e =
      field_error("FIELD_REQUIRED", layer.path + "." + std::string(layer.kind->field) + "." + name,
                  description);
  e.message = layer.where + ": " + name + ": " + description;
  return e;
}

Status LayerBuilder::need_sample_axes(const ResolvedLayer& layer, std::string_view attribute,
                                      const std::vector<int64_t>& axes, TensorId x) const {
  const int64_t rank = shape(x).rank();
  for (const int64_t axis : axes) {
    const std::string text = std::string(attribute) + ": " + std::to_string(axis);
    if (axis == 0 || axis == -rank) {
      return shape_error(layer, text + " is the batch, whose samples must not mix; expected 1.." +
                                    std::to_string(rank - 1) + " or -1..-" +
                                    std::to_string(rank - 1));
    }
    if (axis < -rank || axis >= rank) {
      return shape_error(layer, text + " is not an axis of " + shape(x).to_string() +
                                    ", expected 1.." + std::to_string(rank - 1) + " or -1..-" +
                                    std::to_string(rank - 1));
    }
  }
  return {};
}

Status LayerBuilder::need_image(const ResolvedLayer& layer, TensorId x) const {
  if (shape(x).rank() == 4) return {};
  return shape_error(layer, "needs images [N, C, H, W], but its input is " + shape(x).to_string());
}

std::vector<AttributeRule> weight_rules() {
  return {boolean_rule("bias"), choice_rule("initializer", {"uniform", "kaiming_normal", "normal"}),
          real_rule("initializer_std", false, {.max = 1000, .min_excluded = true})};
}

std::vector<TensorId> with_bias(TensorId x, TensorId weight, TensorId bias) {
  return bias == kNoTensor ? std::vector<TensorId>{x, weight}
                           : std::vector<TensorId>{x, weight, bias};
}

}  // namespace trainyard
