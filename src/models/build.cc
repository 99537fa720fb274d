// From a layer list to a forward graph. Names, attributes and wiring are checked first, all layers
// at once (resolve.cc); shapes then follow layer by layer and stop at the first that does not fit,
// because everything behind it would only repeat the problem.
#include <map>

#include "src/base/text.h"
#include "src/graph/op.h"
#include "src/models/blocks.h"
#include "src/models/layer.h"
#include "src/models/model_spec.h"

namespace trainyard {

namespace {

// "split1.2": output 2 of split1; "split1": its first.
Result<TensorId> find_output(const std::map<std::string, std::vector<TensorId>>& by_name,
                             const ResolvedLayer& reader, const std::string& reference) {
  const size_t dot = reference.find('.');
  const std::vector<TensorId>& outputs = by_name.at(reference.substr(0, dot));
  if (dot == std::string::npos) return outputs[0];
  const std::string index = reference.substr(dot + 1);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (index == std::to_string(i)) return outputs[i];
  }
  Error e = field_error(
      "FIELD_UNKNOWN", reader.path + ".inputs",
      quoted_value(reference) + " does not exist, expected " + reference.substr(0, dot) + ".0" +
          (outputs.size() > 1 ? " to ." + std::to_string(outputs.size() - 1) : ""));
  e.message = reader.where + ": inputs: " + e.violations[0].description;
  return e;
}

Result<TensorId> build_layer(LayerBuilder& builder, const ResolvedLayer& layer,
                             std::map<std::string, std::vector<TensorId>>& by_name) {
  std::vector<TensorId> inputs;
  for (const std::string& reference : layer.inputs) {
    ASSIGN_OR_RETURN(const TensorId id, find_output(by_name, layer, reference));
    inputs.push_back(id);
  }
  std::vector<TensorId> outputs;
  if (layer.kind->build != nullptr) {
    ASSIGN_OR_RETURN(outputs, layer.kind->build(builder, layer, inputs));
  } else {
    ASSIGN_OR_RETURN(const TensorId y,
                     builder.add_node(layer, layer.name, layer.kind->op, layer.attributes, inputs));
    outputs = {y};
  }
  const TensorId first = outputs.at(0);
  by_name[layer.name] = std::move(outputs);
  return first;
}

std::string_view describe(TargetForm target) {
  switch (target) {
    case TargetForm::kClass:
      return " (one score per class); end with a gemm layer without units";
    case TargetForm::kNumeric:
      return "; end with a gemm layer without units";
    case TargetForm::kNextToken:
      return " (at each position one score per token)";
  }
  return "";
}

Status check_output(const LayerBuilder& builder, TensorId output, const ResolvedLayer& last) {
  const ModelInterface& interface = builder.interface();
  std::vector<int64_t> expected = {builder.options().batch_size};
  if (interface.target == TargetForm::kNextToken) expected.push_back(interface.input[0]);
  expected.push_back(interface.outputs);
  if (builder.shape(output) == Shape(expected)) return {};
  std::string text = Shape(expected).to_string();
  text.replace(1, std::to_string(expected[0]).size(), "N");
  return LayerBuilder::shape_error(last, "its output is " + builder.shape(output).to_string() +
                                             ", but the dataset asks for " + text +
                                             std::string(describe(interface.target)));
}

// The loss reads rows of scores: positions of a sequence are rows too.
Result<TensorId> scores_by_row(LayerBuilder& builder, TensorId output) {
  const Shape& shape = builder.shape(output);
  if (shape.rank() == 2) return output;
  Graph& graph = builder.model().graph;
  std::vector<int64_t> rows = {shape[0] * shape[1], shape[2]};
  ASSIGN_OR_RETURN(const NodeId node,
                   graph.add_node("loss/scores", get_op("Reshape"), {{"shape", std::move(rows)}},
                                  {output}, {"loss/scores"}));
  return graph.node(node).outputs[0];
}

Status add_loss(LayerBuilder& builder, const std::string& loss) {
  Model& model = builder.model();
  const bool xent = loss == "SoftmaxCrossEntropyLoss";
  Result<TensorId> scores = scores_by_row(builder, model.output);
  if (!scores.ok()) return scores.error();
  const Shape& rows = builder.shape(*scores);
  model.target = builder.add_tensor("target", xent ? Shape{rows[0]} : rows,
                                    xent ? DType::kI32 : builder.options().dtype, Role::kInput, {});
  std::vector<std::string> outputs = {"loss"};
  if (xent) outputs.emplace_back("loss.prob");  // for the backward pass
  auto node =
      model.graph.add_node("loss", get_op(loss), {}, {*scores, model.target}, std::move(outputs));
  if (!node.ok()) {
    Error e = std::move(node).error();
    e.violations = {{"model.loss", e.message}};
    return e;
  }
  model.loss = model.graph.node(*node).outputs[0];
  model.graph.mark_output(model.loss);
  return {};
}

Result<Model> build_graph(const std::vector<ResolvedLayer>& layers, const std::string& loss,
                          const ModelInterface& interface, const BuildOptions& options) {
  std::vector<int64_t> dims = {options.batch_size};
  dims.insert(dims.end(), interface.input.dims().begin(), interface.input.dims().end());
  const Shape input_shape(std::move(dims));
  if (!input_shape.fits()) {
    return field_error("SHAPE_OUT_OF_RANGE", "recipe.batch_size",
                       "a batch of shape " + input_shape.to_string() + " is too large");
  }
  LayerBuilder builder(interface, options);
  Model& model = builder.model();
  const DType input_type = interface.vocabulary > 0 ? DType::kI32 : options.dtype;
  model.input = builder.add_tensor("input", input_shape, input_type, Role::kInput, {});
  std::map<std::string, std::vector<TensorId>> by_name = {{"input", {model.input}}};
  for (const ResolvedLayer& layer : layers) {
    builder.set_last(&layer == &layers.back());
    ASSIGN_OR_RETURN(model.output, build_layer(builder, layer, by_name));
  }
  if (Status s = check_output(builder, model.output, layers.back()); !s.ok()) {
    return std::move(s).error();
  }
  model.graph.mark_output(model.output);
  if (options.training) {
    if (Status s = add_loss(builder, loss); !s.ok()) return std::move(s).error();
  }
  return std::move(model);
}

Result<std::string> choose_loss(const ModelSpec& spec, const ModelInterface& interface) {
  const bool numeric = interface.target == TargetForm::kNumeric;
  const std::string fitting = numeric ? "MeanSquaredError" : "SoftmaxCrossEntropyLoss";
  if (spec.loss.empty() || spec.loss == fitting) return fitting;
  if (spec.loss != "SoftmaxCrossEntropyLoss" && spec.loss != "MeanSquaredError") {
    return field_error("FIELD_UNSUPPORTED", "model.loss",
                       quoted_value(spec.loss) +
                           " is not known, expected softmax_cross_entropy or mean_squared_error");
  }
  return field_error(
      "FIELD_UNSUPPORTED", "model.loss",
      numeric ? "softmax_cross_entropy does not fit a numeric target, expected mean_squared_error"
              : "mean_squared_error does not fit a target of classes, expected "
                "softmax_cross_entropy");
}

}  // namespace

Result<Model> build_model(const ModelSpec& spec, const ModelInterface& interface,
                          const BuildOptions& options) {
  TRAINYARD_CHECK(options.batch_size >= 1, "batch_size must be positive");
  if (!spec.preset.empty() && !spec.layers.empty()) {
    return field_error("FIELD_DUPLICATE", "model",
                       "names several architectures; expected a preset or layers, not both");
  }
  if (interface.outputs < (interface.target == TargetForm::kNumeric ? 1 : 2)) {
    return field_error(
        "DATASET_INVALID", "dataset",
        "the target has " + std::to_string(interface.outputs) + " classes, expected at least 2");
  }
  if (!spec.preset.empty() && !spec.blocks.empty()) {
    return field_error("FIELD_UNUSED", "model.blocks", "has no effect beside a preset; remove it");
  }
  std::vector<LayerSpec> layers = spec.layers;
  if (!spec.preset.empty()) {
    ASSIGN_OR_RETURN(layers, expand_preset(spec, interface));
  } else if (uses_blocks(spec)) {
    ASSIGN_OR_RETURN(layers, expand_blocks(spec));
  }
  ASSIGN_OR_RETURN(const std::string loss, choose_loss(spec, interface));
  ASSIGN_OR_RETURN(const std::vector<ResolvedLayer> resolved, resolve_layers(layers, spec.preset));
  return build_graph(resolved, loss, interface, options);
}

}  // namespace trainyard
