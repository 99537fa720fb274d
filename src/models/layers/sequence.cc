// Layers on sequences: tokens [N, T], positions [N, T, D].
#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/models/generation.h"
#include "src/models/layer.h"
#include "src/models/layers/padding.h"
#include "src/models/lora.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

/// Embedding tables start normally distributed with the standard deviation `initializer_std`.
Initializer table_initializer(const ResolvedLayer& layer, double fallback) {
  return {Initializer::Kind::kNormal, 0, layer.attributes.get_float("initializer_std", fallback)};
}

Error field_refusal(const ResolvedLayer& layer, std::string_view reason, std::string_view attribute,
                    const std::string& description) {
  const std::string name(attribute);
  Error e =
      field_error(std::string(reason),
                  layer.path + "." + std::string(layer.kind->field) + "." + name, description);
  e.message = layer.where + ": " + name + ": " + description;
  return e;
}

Status need_sequence(const LayerBuilder& b, const ResolvedLayer& layer, TensorId x) {
  if (b.shape(x).rank() == 3) return {};
  return LayerBuilder::shape_error(
      layer, "needs a sequence [N, T, D], but its input is " + b.shape(x).to_string());
}

/// Returns `axis` counted from the front; refuses axis 0, the batch.
Result<int64_t> axis_behind_batch(const ResolvedLayer& layer, const Shape& x) {
  const int64_t given = layer.attributes.get_int("axis", -1);
  const int64_t axis = given < 0 ? given + x.rank() : given;
  if (axis >= 1 && axis < x.rank()) return axis;
  return field_refusal(layer, "FIELD_OUT_OF_RANGE", "axis",
                       std::to_string(given) + " is not a dimension after the batch of " +
                           x.to_string() + ", expected 1.." + std::to_string(x.rank() - 1) +
                           " or -1.." + std::to_string(1 - x.rank()));
}

// --- linear: the same product at every position ---

void complete_linear(Attributes& a) { a.set("bias", a.get_int("bias", 1)); }

/// Returns the weight of the layer that `tied_to` names.
Result<TensorId> tied_weight(const LayerBuilder& b, const ResolvedLayer& layer, int64_t features) {
  const std::string source = layer.attributes.get_string("tied_to", "");
  const Graph& graph = b.graph();
  const auto weight = graph.find_tensor(source + ".weight");
  if (!weight || graph.tensor(*weight).role != Role::kParameter) {
    return field_refusal(layer, "FIELD_UNKNOWN", "tied_to",
                         quoted_value(source) +
                             " is not a layer with a weight, expected the name of an earlier one");
  }
  const Shape& shape = b.shape(*weight);
  if (shape.rank() != 2 || shape[1] != features) {
    return field_refusal(layer, "SHAPE_MISMATCH", "tied_to",
                         "the weight of '" + source + "' is " + shape.to_string() +
                             ", expected [units, " + std::to_string(features) + "]");
  }
  if (graph.find_tensor(source + std::string(kLoraA))) {
    return field_refusal(layer, "FIELD_CONFLICT", "tied_to",
                         quoted_value(source) +
                             " is a target of recipe.lora, whose weight no other layer can share");
  }
  for (const char* given : {"units", "initializer", "initializer_std"}) {
    if (layer.attributes.find(given) == nullptr) continue;
    return field_refusal(layer, "FIELD_UNUSED", given,
                         "follows from tied_to; expected only one of the two");
  }
  return *weight;
}

Result<int64_t> units_of(const LayerBuilder& b, const ResolvedLayer& layer) {
  const int64_t units = layer.attributes.get_int("units", 0);
  if (units > 0) return units;
  if (b.is_last()) return b.interface().outputs;
  return LayerBuilder::required_error(
      layer, "units", "is required for every layer but the last: a whole number in 1..1048576");
}

Result<LayerBuilder::Weights> linear_weights(LayerBuilder& b, const ResolvedLayer& layer,
                                             int64_t features) {
  if (layer.attributes.find("tied_to") == nullptr) {
    ASSIGN_OR_RETURN(const int64_t units, units_of(b, layer));
    return b.add_weights(layer, Shape{units, features}, units, features, units);
  }
  LayerBuilder::Weights w;
  w.tied = true;
  ASSIGN_OR_RETURN(w.weight, tied_weight(b, layer, features));
  if (layer.attributes.get_int("bias", 1) != 0) {
    ASSIGN_OR_RETURN(w.bias,
                     b.add_fan_in_parameter(layer, "bias", Shape{b.shape(w.weight)[0]}, features));
  }
  return w;
}

// All positions are rows of one matrix product.
Outputs build_linear(LayerBuilder& b, const ResolvedLayer& layer,
                     std::span<const TensorId> inputs) {
  TensorId x = inputs[0];
  std::vector<int64_t> dims = b.shape(x).dims();
  const bool is_matrix = dims.size() == 2;
  ASSIGN_OR_RETURN(const LayerBuilder::Weights w, linear_weights(b, layer, dims.back()));
  if (!is_matrix) {
    const std::vector<int64_t> rows = {b.shape(x).elements() / dims.back(), dims.back()};
    ASSIGN_OR_RETURN(x, b.add_node(layer, layer.name + "/rows", "Reshape", {{"shape", rows}}, {x}));
  }
  ASSIGN_OR_RETURN(TensorId y,
                   b.add_product(layer, layer.name + (is_matrix ? "" : "/product"), x, w));
  if (!is_matrix) {
    dims.back() = b.shape(y)[1];
    ASSIGN_OR_RETURN(y, b.add_node(layer, layer.name, "Reshape", {{"shape", dims}}, {y}));
  }
  return {{y}};
}

// --- embeddings ---

Outputs build_embedding(LayerBuilder& b, const ResolvedLayer& layer,
                        std::span<const TensorId> inputs) {
  if (b.type(inputs[0]).dtype != DType::kI32) {
    return LayerBuilder::shape_error(
        layer, "needs tokens, but its input is numbers " + b.shape(inputs[0]).to_string());
  }
  const int64_t vocabulary = b.interface().vocabulary;
  const int64_t rows = layer.attributes.get_int("num_embeddings", vocabulary);
  if (rows < vocabulary) {
    return field_refusal(layer, "FIELD_OUT_OF_RANGE", "num_embeddings",
                         std::to_string(rows) +
                             " is less than the dataset's vocabulary, expected " +
                             std::to_string(vocabulary) + " or more");
  }
  const int64_t width = layer.attributes.get_int("embedding_dim", 0);
  ASSIGN_OR_RETURN(const TensorId table, b.add_parameter(layer, "weight", Shape{rows, width},
                                                         table_initializer(layer, 1)));
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "Gather", {}, {table, inputs[0]}));
  b.model().lookups.push_back(
      {layer.name, layer.path + ".embedding.sparse", layer.attributes.get_int("sparse", 0) != 0});
  return {{y}};
}

constexpr double kPositionStd = 0.02;  // usual in papers on transformers; PyTorch has no such layer

void complete_position_embedding(Attributes& a) {
  a.set("class_token", a.get_int("class_token", 0));
}

Outputs build_position_embedding(LayerBuilder& b, const ResolvedLayer& layer,
                                 std::span<const TensorId> inputs) {
  const TensorId x = inputs[0];
  if (Status s = need_sequence(b, layer, x); !s.ok()) return std::move(s).error();
  const int64_t width = b.shape(x)[2];
  const int64_t prefix = layer.attributes.get_int("class_token", 0);
  // A graph for generation reads few tokens of a row at a time; the table has all positions.
  const bool generates = b.options().generation.capacity > 0;
  const int64_t length = generates ? b.interface().input[0] : b.shape(x)[1];
  ASSIGN_OR_RETURN(const TensorId position,
                   b.add_parameter(layer, "weight", Shape{prefix + length, width},
                                   table_initializer(layer, kPositionStd)));
  if (b.positions() != kNoTensor) {  // each document begins at position 0
    if (prefix > 0) {
      return field_refusal(layer, "FIELD_UNSUPPORTED", "class_token",
                           "does not go with dataset.documents, whose rows hold several "
                           "documents; remove it");
    }
    ASSIGN_OR_RETURN(const TensorId rows, b.add_node(layer, layer.name + "/rows", "Gather", {},
                                                     {position, b.positions()}));
    ASSIGN_OR_RETURN(const TensorId y, b.add_node(layer, layer.name, "Add", {}, {x, rows}));
    return {{y}};
  }
  std::vector<TensorId> operands = {x, position};
  if (prefix > 0) {
    ASSIGN_OR_RETURN(const TensorId token,
                     b.add_parameter(layer, "class_token", Shape{prefix, width}, {}));
    operands.push_back(token);
  }
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "PositionEmbedding", {}, std::move(operands)));
  return {{y}};
}

// --- attention and normalization of positions ---

void complete_attention(Attributes& a) { a.set("is_causal", a.get_int("is_causal", 0)); }

// Adds the dropout attributes, which have an effect only in training. With dropout, the step is an
// input after query, key and value.
void add_dropout(LayerBuilder& b, const ResolvedLayer& layer, Attributes& attributes,
                 std::vector<TensorId>& operands) {
  attributes.set("dropout", 0.0);
  const double ratio = layer.attributes.get_float("dropout", 0);
  if (!b.options().training || ratio == 0) return;
  attributes.set("dropout", ratio);
  attributes.set("seed", static_cast<int64_t>(b.options().seed));
  attributes.set("stream", int64_t{stream_of(layer.name)});
  operands.resize(3, kNoTensor);
  operands.push_back(b.step());
}

// One input is query, key and value side by side, three are these. One more is the tokens, whose
// padding no query attends to.
Outputs build_attention(LayerBuilder& b, const ResolvedLayer& layer,
                        std::span<const TensorId> inputs) {
  const bool has_tokens = inputs.size() % 2 == 0;
  std::vector<TensorId> operands(inputs.begin(), inputs.end() - (has_tokens ? 1 : 0));
  for (const TensorId x : operands) {
    if (Status s = need_sequence(b, layer, x); !s.ok()) return std::move(s).error();
  }
  Attributes attributes = layer.attributes;
  if (b.options().generation.capacity > 0) {
    ASSIGN_OR_RETURN(const TensorId y, add_cached_attention(b, layer, operands, attributes));
    return {{y}};
  }
  if (attributes.find("dropout") != nullptr) add_dropout(b, layer, attributes, operands);
  // Tokens see only their own document. Attention that is not causal sees the whole row.
  if (attributes.get_int("is_causal", 0) != 0 && b.positions() != kNoTensor) {
    operands.resize(4, kNoTensor);
    operands.push_back(b.positions());
  }
  if (has_tokens) {
    if (layer.attributes.get_int("is_causal", 0) != 0) {
      return field_refusal(layer, "FIELD_CONFLICT", "is_causal",
                           "makes tokens as the last input useless, since padding comes last; "
                           "expected only one of the two");
    }
    const TensorId keys = inputs[inputs.size() == 2 ? 0 : 1];
    if (Status t = check_tokens_of(b, layer, keys, inputs.back()); !t.ok()) {
      return std::move(t).error();
    }
    ASSIGN_OR_RETURN(const TensorId lengths, sequence_lengths(b, layer, inputs.back()));
    operands.resize(5, kNoTensor);
    operands.push_back(lengths);
  }
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "Attention", std::move(attributes),
                              std::move(operands), {b.options().training ? "log_sum_exp" : ""}));
  return {{y}};
}

void complete_layer_norm(Attributes& a) {
  a.set("axis", a.get_int("axis", -1));
  a.set("epsilon", a.get_float("epsilon", 1e-5));
  a.set("bias", a.get_int("bias", 1));
}

void complete_rms_norm(Attributes& a) {
  a.set("axis", a.get_int("axis", -1));
  a.set("epsilon", a.get_float("epsilon", 1e-5));
}

// Builds LayerNormalization or RMSNormalization. The batch axis is not normalized over.
Outputs build_normalization(LayerBuilder& b, const ResolvedLayer& layer,
                            std::span<const TensorId> inputs) {
  const Shape x = b.shape(inputs[0]);
  ASSIGN_OR_RETURN(const int64_t axis, axis_behind_batch(layer, x));
  const Shape vector(std::vector<int64_t>(x.dims().begin() + axis, x.dims().end()));
  const Initializer one{Initializer::Kind::kConstant, 1, 0};
  ASSIGN_OR_RETURN(const TensorId scale, b.add_parameter(layer, "weight", vector, one));
  std::vector<TensorId> operands = {inputs[0], scale};
  const bool is_layer = layer.kind->op == "LayerNormalization";
  if (is_layer && layer.attributes.get_int("bias", 1) != 0) {
    ASSIGN_OR_RETURN(const TensorId bias, b.add_parameter(layer, "bias", vector, {}));
    operands.push_back(bias);
  }
  std::vector<std::string> saved = {"inv_rms"};
  if (is_layer) saved = {"mean", "inv_std_dev"};
  if (!b.options().training) saved.assign(saved.size(), "");
  ASSIGN_OR_RETURN(
      const TensorId y,
      b.add_node(layer, layer.name, layer.kind->op,
                 {{"axis", axis}, {"epsilon", layer.attributes.get_float("epsilon", 1e-5)}},
                 std::move(operands), std::move(saved)));
  return {{y}};
}

// --- softmax ---

void complete_softmax(Attributes& a) { a.set("axis", a.get_int("axis", -1)); }

// Refuses softmax over the batch axis, which would mix samples.
Outputs build_softmax(LayerBuilder& b, const ResolvedLayer& layer,
                      std::span<const TensorId> inputs) {
  ASSIGN_OR_RETURN(const int64_t axis, axis_behind_batch(layer, b.shape(inputs[0])));
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, layer.kind->op, {{"axis", axis}}, {inputs[0]}));
  return {{y}};
}

// --- conversions between images, sequences and vectors ---

void complete_sequence_pool(Attributes& a) { a.set("mode", a.get_string("mode", "mean")); }

// The second input, if there is one, is the tokens of the sequence.
Outputs build_sequence_pool(LayerBuilder& b, const ResolvedLayer& layer,
                            std::span<const TensorId> inputs) {
  Attributes attributes = inputs.size() > 1 ? padding_attribute(b) : Attributes{};
  attributes.set("mode", layer.attributes.get_string("mode", "mean"));
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "SequencePool", std::move(attributes),
                              {inputs.begin(), inputs.end()}));
  return {{y}};
}

Outputs build_image_to_sequence(LayerBuilder& b, const ResolvedLayer& layer,
                                std::span<const TensorId> inputs) {
  if (Status s = b.need_image(layer, inputs[0]); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "ImageToSequence", {}, {inputs[0]}));
  return {{y}};
}

}  // namespace

std::vector<LayerKind> sequence_layers() {
  const AttributeRule std =
      real_rule("initializer_std", false, {.max = 1000, .min_excluded = true});
  std::vector<AttributeRule> linear = weight_rules();
  linear.insert(linear.begin(), {integer_rule("units", false, 1, kUnitsMax), text_rule("tied_to")});
  const AttributeRule epsilon = real_rule("epsilon", false, {.max = 1, .min_excluded = true});
  return {
      {.op = "Linear",
       .field = "linear",
       .attributes = std::move(linear),
       .complete = complete_linear,
       .build = build_linear},
      {.op = "Embedding",
       .field = "embedding",
       .attributes = {integer_rule("num_embeddings", false, 1, kEmbeddingsMax),
                      integer_rule("embedding_dim", true, 1, kUnitsMax), std,
                      boolean_rule("sparse")},
       .build = build_embedding},
      {.op = "PositionEmbedding",
       .field = "position_embedding",
       .attributes = {boolean_rule("class_token"), std},
       .complete = complete_position_embedding,
       .build = build_position_embedding},
      {.op = "Attention",
       .field = "attention",
       .inputs_max = 4,
       .attributes = {integer_rule("q_num_heads", true, 1, 1024),
                      integer_rule("kv_num_heads", false, 1, 1024), boolean_rule("is_causal"),
                      integer_rule("window", false, 1, kUnitsMax),
                      real_rule("scale", false, {.max = 1000, .min_excluded = true}),
                      real_rule("dropout", false, {.max = 1, .max_excluded = true})},
       .complete = complete_attention,
       .build = build_attention},
      {.op = "LayerNormalization",
       .field = "layer_normalization",
       .attributes = {integer_rule("axis", false, -8, 8), epsilon, boolean_rule("bias")},
       .complete = complete_layer_norm,
       .build = build_normalization},
      {.op = "RMSNormalization",
       .field = "rms_normalization",
       .attributes = {integer_rule("axis", false, -8, 8), epsilon},
       .complete = complete_rms_norm,
       .build = build_normalization},
      {.op = "MatMul", .field = "mat_mul", .inputs = 2, .inputs_max = 2},
      {.op = "Softmax",
       .field = "softmax",
       .attributes = {integer_rule("axis", false, -8, 8)},
       .complete = complete_softmax,
       .build = build_softmax},
      {.op = "LogSoftmax",
       .field = "log_softmax",
       .attributes = {integer_rule("axis", false, -8, 8)},
       .complete = complete_softmax,
       .build = build_softmax},
      {.op = "SequencePool",
       .field = "sequence_pool",
       .inputs_max = 2,
       .attributes = {choice_rule("mode", {"mean", "max", "first", "last"})},
       .complete = complete_sequence_pool,
       .build = build_sequence_pool},
      {.op = "ImageToSequence", .field = "image_to_sequence", .build = build_image_to_sequence}};
}

}  // namespace trainyard
