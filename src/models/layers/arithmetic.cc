// Arithmetic between layers, with broadcasting, and trained parameters and constants as operands.
// With these, users can express operations that have no layer.
//
// Axis 0 of every layer's output is the batch; in parameters and constants it has size 1.
#include <algorithm>

#include "src/models/layer.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

// Refuses two inputs with a batch but different ranks. Shapes are aligned at the last axis, so the
// batch of the smaller input would be combined with another axis of the larger one.
Outputs build_broadcast(LayerBuilder& b, const ResolvedLayer& layer,
                        std::span<const TensorId> inputs) {
  const int64_t rank = std::max(b.shape(inputs[0]).rank(), b.shape(inputs[1]).rank());
  for (const TensorId x : inputs) {
    if (b.shape(x).rank() == rank || !b.has_batch(x)) continue;
    return LayerBuilder::shape_error(
        layer,
        "its inputs have shapes " + b.shape(inputs[0]).to_string() + " and " +
            b.shape(inputs[1]).to_string() +
            "; both have a batch, so they need the same number of axes: unsqueeze the smaller one");
  }
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, layer.kind->op, {}, {inputs[0], inputs[1]}));
  return {{y}};
}

LayerKind broadcast_layer(std::string_view op, std::string_view field) {
  return {.op = op, .field = field, .inputs = 2, .inputs_max = 2, .build = build_broadcast};
}

// The slope is one value per channel, or a single value for all.
Outputs build_prelu(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId> inputs) {
  const Shape& x = b.shape(inputs[0]);
  std::vector<int64_t> dims = {1};
  if (layer.attributes.get_int("shared", 0) == 0) {
    if (x.rank() < 2) return LayerBuilder::shape_error(layer, "needs channels, or shared: true");
    dims.assign(static_cast<size_t>(x.rank() - 1), 1);
    dims[0] = x[1];
  }
  ASSIGN_OR_RETURN(
      const TensorId slope,
      b.add_parameter(layer, "weight", Shape(std::move(dims)),
                      {Initializer::Kind::kConstant, layer.attributes.get_float("init", 0.25), 0}));
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "PRelu", {}, {inputs[0], slope}));
  return {{y}};
}

void complete_prelu(Attributes& a) {
  a.set("shared", a.get_int("shared", 0));
  a.set("init", a.get_float("init", 0.25));
}

// Returns the shape of a parameter or constant: the user's shape with a batch axis of size 1 before
// it.
Result<std::vector<int64_t>> unit_batch(const ResolvedLayer& layer) {
  std::vector<int64_t> dims = layer.attributes.get_ints("shape", {});
  dims.insert(dims.begin(), 1);
  if (!Shape(dims).fits()) {
    return LayerBuilder::shape_error(layer, "shape: " + Shape(dims).to_string() + " is too large");
  }
  return dims;
}

Outputs build_parameter(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId>) {
  ASSIGN_OR_RETURN(std::vector<int64_t> dims, unit_batch(layer));
  const std::string init = layer.attributes.get_string("init", "normal");
  if (init == "constant" && layer.attributes.find("scale") != nullptr) {
    return LayerBuilder::shape_error(layer, "scale: has no effect with init: constant; remove it");
  }
  const double value = layer.attributes.get_float("value", 0);
  const double scale = layer.attributes.get_float("scale", 0.02);
  Initializer initializer{Initializer::Kind::kConstant, value, 0};
  if (init == "normal") initializer = {Initializer::Kind::kNormal, value, scale};
  if (init == "uniform") {
    initializer = {Initializer::Kind::kUniform, value - scale, value + scale};
  }
  if (layer.attributes.get_int("trainable", 1) == 0) {
    return {{b.add_tensor(layer.name + ".weight", Shape(std::move(dims)), b.options().dtype,
                          Role::kState, initializer)}};
  }
  ASSIGN_OR_RETURN(const TensorId p,
                   b.add_parameter(layer, "weight", Shape(std::move(dims)), initializer));
  return {{p}};
}

void complete_shape(Attributes& a, std::vector<int64_t> fallback) {
  a.set("shape", spell_out(a, "shape", 1, std::move(fallback)));
}

void complete_parameter(Attributes& a) {
  complete_shape(a, {});
  a.set("init", a.get_string("init", "normal"));
  a.set("trainable", a.get_int("trainable", 1));
}

void complete_constant(Attributes& a) { complete_shape(a, {1}); }

Outputs build_constant(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId>) {
  ASSIGN_OR_RETURN(std::vector<int64_t> dims, unit_batch(layer));
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "ConstantOfShape",
                              {{"shape", std::move(dims)},
                               {"value", layer.attributes.get_float("value", 0)},
                               {"dtype", std::string(name_of(b.options().dtype))}},
                              {}));
  return {{y}};
}

// Reduces over all axes of the sample if the user names none.
Outputs build_reduce(LayerBuilder& b, const ResolvedLayer& layer,
                     std::span<const TensorId> inputs) {
  Attributes attributes = layer.attributes;
  std::vector<int64_t> axes = layer.attributes.get_ints("axes", {});
  if (axes.empty()) {
    for (int64_t i = 1; i < b.shape(inputs[0]).rank(); ++i) axes.push_back(i);
  }
  if (axes.empty())
    return LayerBuilder::shape_error(layer, "its input has no axis besides the batch");
  if (Status s = b.need_sample_axes(layer, "axes", axes, inputs[0]); !s.ok()) {
    return std::move(s).error();
  }
  attributes.set("axes", std::move(axes));
  ASSIGN_OR_RETURN(const TensorId y, b.add_node(layer, layer.name, layer.kind->op,
                                                std::move(attributes), {inputs[0]}));
  return {{y}};
}

void complete_reduce(Attributes& a) {
  a.set("axes", spell_out(a, "axes", 1, {}));
  a.set("keepdims", a.get_int("keepdims", 1));
}

LayerKind reduce_layer(std::string_view op, std::string_view field) {
  return {.op = op,
          .field = field,
          .attributes = {dims_rule("axes", false, -8, 7), boolean_rule("keepdims")},
          .complete = complete_reduce,
          .build = build_reduce};
}

}  // namespace

std::vector<LayerKind> arithmetic_layers() {
  constexpr double kValueMax = 1e30;
  return {broadcast_layer("Add", "add"),
          broadcast_layer("Sub", "sub"),
          broadcast_layer("Mul", "mul"),
          broadcast_layer("Div", "div"),
          broadcast_layer("Pow", "pow"),
          broadcast_layer("Min", "min"),
          broadcast_layer("Max", "max"),
          {.op = "PRelu",
           .field = "p_relu",
           .attributes = {boolean_rule("shared"),
                          real_rule("init", false, {.min = -kValueMax, .max = kValueMax})},
           .complete = complete_prelu,
           .build = build_prelu},
          {.op = "Parameter",
           .field = "parameter",
           .inputs = 0,
           .inputs_max = 0,
           .attributes = {dims_rule("shape", true, 1, kUnitsMax),
                          choice_rule("init", {"normal", "uniform", "constant"}),
                          real_rule("value", false, {.min = -kValueMax, .max = kValueMax}),
                          real_rule("scale", false, {.max = kValueMax}), boolean_rule("trainable")},
           .complete = complete_parameter,
           .build = build_parameter},
          {.op = "Constant",
           .field = "constant",
           .inputs = 0,
           .inputs_max = 0,
           .attributes = {dims_rule("shape", false, 1, kUnitsMax),
                          real_rule("value", true, {.min = -kValueMax, .max = kValueMax})},
           .complete = complete_constant,
           .build = build_constant},
          reduce_layer("ReduceSum", "reduce_sum"),
          reduce_layer("ReduceMean", "reduce_mean"),
          reduce_layer("ReduceMin", "reduce_min"),
          reduce_layer("ReduceMax", "reduce_max"),
          reduce_layer("ReduceL2", "reduce_l2")};
}

}  // namespace trainyard
