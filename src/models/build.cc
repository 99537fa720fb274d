// Builds the forward graph of a layer list. Names, attributes and connections of all layers are
// checked first (resolve.cc). Shapes are then computed layer by layer, up to the first layer that
// does not fit, since later layers would only repeat the problem.
#include "src/base/stop.h"
#include "src/graph/op.h"
#include "src/models/blocks.h"
#include "src/models/generation.h"
#include "src/models/layer.h"
#include "src/models/lora.h"
#include "src/models/loss.h"
#include "src/models/network.h"
#include "src/models/preset.h"

namespace trainyard {

namespace {

std::string_view output_hint(TargetForm target) {
  switch (target) {
    case TargetForm::kClass:
      return " (one score per class); end with a gemm layer without units";
    case TargetForm::kNumeric:
      return "; end with a gemm layer without units";
    case TargetForm::kNextToken:
      return " (one score per token at each position)";
    case TargetForm::kInput:
      return " (the input itself, or flat); end with a layer of that shape or a gemm layer without "
             "units";
  }
  return "";
}

Status check_output(const LayerBuilder& builder, TensorId output, const ResolvedLayer& last) {
  const ModelInterface& interface = builder.interface();
  std::vector<int64_t> expected = {builder.options().batch_size};
  if (interface.target == TargetForm::kNextToken) {
    expected.push_back(builder.shape(builder.input())[1]);
  }
  expected.push_back(interface.outputs);
  const Shape& shape = builder.shape(output);
  if (shape == Shape(expected)) return {};
  if (interface.target == TargetForm::kInput) {
    expected.pop_back();
    expected.insert(expected.end(), interface.input.dims().begin(), interface.input.dims().end());
    if (shape == Shape(expected)) return {};
  }
  std::string text = Shape(expected).to_string();
  text.replace(1, std::to_string(expected[0]).size(), "N");
  return LayerBuilder::shape_error(last, "its output is " + shape.to_string() +
                                             ", but the dataset needs " + text +
                                             std::string(output_hint(interface.target)));
}

Result<TensorId> add_reshape(LayerBuilder& builder, const std::string& name, TensorId x,
                             std::vector<int64_t> shape) {
  ASSIGN_OR_RETURN(const NodeId node,
                   builder.model().graph.add_node(name, get_op("Reshape"),
                                                  {{"shape", std::move(shape)}}, {x}, {name}));
  return builder.graph().node(node).outputs[0];
}

// Reshapes the output to one row of scores per prediction; positions of a sequence become rows.
Result<TensorId> add_scores(LayerBuilder& builder, TensorId output) {
  const Shape& shape = builder.shape(output);
  if (shape.rank() == 2) return output;
  return add_reshape(builder, "loss/scores", output, {shape[0] * shape[1], shape[2]});
}

// Reshapes samples to rows of numbers, the form in which images are reconstructed and compared.
Result<TensorId> add_rows(LayerBuilder& builder, const std::string& name, TensorId x) {
  const Shape& shape = builder.shape(x);
  if (shape.rank() == 2) return x;
  return add_reshape(builder, name, x, {shape[0], shape.elements() / shape[0]});
}

Status add_loss(LayerBuilder& builder, const Objective& objective) {
  Model& model = builder.model();
  const bool reconstructs = objective.interface.target == TargetForm::kInput;
  Result<TensorId> output = model.output;
  Result<TensorId> target = kNoTensor;
  if (reconstructs) {
    target = add_rows(builder, "loss/input", model.input);
    if (!target.ok()) return target.error();
  } else {
    output = add_scores(builder, model.output);
    if (!output.ok()) return output.error();
    const Shape& rows = builder.shape(*output);
    const bool labels =
        objective.interface.target != TargetForm::kNumeric && !builder.options().class_shares;
    target = model.target =
        builder.add_tensor("target", labels ? Shape{rows[0]} : rows,
                           labels ? DType::kI32 : builder.options().dtype, Role::kInput, {});
  }
  std::vector<std::string> outputs = {"loss"};
  if (objective.loss->classes) outputs.emplace_back("loss.prob");  // saved for the backward pass
  std::string_view op = objective.loss->op;
  Attributes attributes = objective.attributes;
  if (objective.loss->samples) {
    op = "SoftmaxCrossEntropyLoss";  // a placeholder until the head is replaced
    attributes = {};
    if (objective.ignored_label() >= 0) attributes.set("ignore_index", objective.ignored_label());
    model.sampling = {objective.attributes.get_int("samples", 0),
                      objective.attributes.get_string("distribution", "log_uniform")};
  }
  auto node = model.graph.add_node("loss", get_op(op), std::move(attributes), {*output, *target},
                                   std::move(outputs));
  if (!node.ok()) {
    Error e = std::move(node).error();
    e.violations = {{"model.loss", e.message}};
    return e;
  }
  model.loss = model.graph.node(*node).outputs[0];
  model.graph.mark_output(model.loss);
  return {};
}

Result<Model> build_graph(const std::vector<ResolvedLayer>& layers, const Objective& objective,
                          const BuildOptions& options) {
  const ModelInterface& interface = objective.interface;
  ASSIGN_OR_RETURN(Network network, Network::start(interface, options));
  LayerBuilder& builder = network.builder();
  Model& model = builder.model();
  for (const ResolvedLayer& layer : layers) {
    if (Status s = check_stop(options.stop); !s.ok()) return s.error();
    if (options.generation.capacity > 0) {
      if (Status s = check_generation(layer); !s.ok()) return s.error();
    }
    ASSIGN_OR_RETURN(model.output, network.add(layer, &layer == &layers.back()));
    if (options.generation.capacity > 0) {
      if (Status s = check_positions(builder, layer, model.output); !s.ok()) return s.error();
    }
  }
  if (Status s = check_output(builder, model.output, layers.back()); !s.ok()) {
    return std::move(s).error();
  }
  if (interface.target == TargetForm::kInput) {
    ASSIGN_OR_RETURN(model.output, add_rows(builder, "reconstruction", model.output));
  }
  // While it trains, the training loop does not read reconstructions, scores of tokens, or scores
  // of very many classes (session.h).
  const bool reads =
      !options.training || objective.reads_scores() || interface.target == TargetForm::kNumeric;
  if (reads && options.generation.scores) model.graph.mark_output(model.output);
  if (options.training) {
    if (Status s = add_loss(builder, objective); !s.ok()) return std::move(s).error();
  }
  return std::move(model);
}

/// Returns the layer that recipe.lora trains in full; empty if there is none.
std::string trained_layer(const ModelSpec& spec, const Objective& objective, const Graph& graph) {
  const PresetKind* const preset = find_preset_kind(spec.preset);
  const bool is_new =
      preset != nullptr && preset->predicts_tokens && classifies_text(objective.interface);
  const std::string head(kClassifierHead);
  return is_new && !graph.find_tensor(head + std::string(kLoraA)) ? head : "";
}

// Returns the layers of the model, expanded and checked.
Result<std::vector<ResolvedLayer>> list_layers(const ModelSpec& spec,
                                               const ModelInterface& interface) {
  std::vector<LayerSpec> layers = spec.layers;
  if (!spec.preset.empty()) {
    ASSIGN_OR_RETURN(layers, expand_preset(spec, interface));
  } else if (uses_blocks(spec)) {
    ASSIGN_OR_RETURN(layers, expand_blocks(spec));
  }
  return resolve_layers(layers, spec.preset);
}

}  // namespace

Result<Model> build_model(const ModelSpec& spec, const ModelInterface& data,
                          const BuildOptions& options) {
  TRAINYARD_CHECK(options.batch_size >= 1, "batch_size must be positive");
  if (!spec.preset.empty() && !spec.layers.empty()) {
    return field_error("FIELD_DUPLICATE", "model",
                       "names several architectures; expected a preset or layers, not both");
  }
  if (data.outputs < (data.target == TargetForm::kNumeric ? 1 : 2)) {
    return field_error(
        "DATASET_INVALID", "dataset",
        "the target has " + std::to_string(data.outputs) + " classes, expected at least 2");
  }
  const Result<Objective> objective = find_objective(spec, data);
  if (!spec.preset.empty() && !spec.blocks.empty()) {
    return field_error("FIELD_UNUSED", "model.blocks", "has no effect with a preset; remove it");
  }
  const Result<std::vector<ResolvedLayer>> layers =
      list_layers(spec, objective.ok() ? objective->interface : data);
  if (objective.ok() && layers.ok()) {
    ASSIGN_OR_RETURN(Model model, build_graph(*layers, *objective, options));
    model.trained_layer = trained_layer(spec, *objective, model.graph);
    return model;
  }
  if (objective.ok()) return layers.error();
  if (layers.ok()) return objective.error();
  Violations both;
  both.add(objective.error());
  both.add(layers.error());
  return both.to_error();
}

}  // namespace trainyard
