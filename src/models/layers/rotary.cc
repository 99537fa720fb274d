// The layer rotary_embedding, which rotates the heads of queries and keys by their positions.
#include "src/models/rotary.h"
#include "src/models/layer.h"
#include "src/ops/rotary_embedding.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

constexpr double kThetaMax = 1e12;
constexpr double kScaleMax = 1e6;
constexpr double kPositionsMax = 1 << 30;

/// Refuses settings that the layer's scaling needs but does not have, or does not read.
Status check_scaling(const ResolvedLayer& layer) {
  const auto problem = find_scaling_problem(layer.attributes, "");
  if (!problem) return {};
  Error e = LayerBuilder::required_error(layer, problem->attribute, problem->description);
  e.reason = problem->reason;
  return e;
}

/// Returns the node's outputs cos and sin. All layers with the same settings share one node.
Result<std::vector<TensorId>> add_tables(LayerBuilder& b, const ResolvedLayer& layer, int64_t dim,
                                         int64_t length) {
  if (Status s = check_scaling(layer); !s.ok()) return std::move(s).error();
  const RotaryFrequencies frequencies = rotary_frequencies(
      dim, layer.attributes.get_float("theta", 10000), rotary_scaling(layer.attributes));
  Attributes attributes{{"frequencies", frequencies.values},
                        {"factor", frequencies.factor},
                        {"dtype", std::string(name_of(b.options().dtype))}};
  std::vector<TensorId> inputs;
  if (b.positions() != kNoTensor) {
    inputs.push_back(b.positions());
  } else {
    attributes.set("length", length);
  }
  for (const Node& node : b.graph().nodes()) {
    if (node.op == rotary_tables_op() && node.inputs == inputs &&
        node.attributes.items() == attributes.items()) {
      return node.outputs;
    }
  }
  const std::string name = layer.name + "/tables";
  ASSIGN_OR_RETURN(const NodeId node,
                   b.model().graph.add_node(name, *rotary_tables_op(), std::move(attributes),
                                            std::move(inputs), {name + ".cos", name + ".sin"}));
  return b.graph().node(node).outputs;
}

/// Returns tables that are layers of their own, without their batch axis of size 1.
Result<std::vector<TensorId>> given_tables(LayerBuilder& b, const ResolvedLayer& layer,
                                           std::span<const TensorId> inputs) {
  std::vector<TensorId> tables;
  for (size_t i = 1; i < 3; ++i) {
    TensorId table = inputs[i];
    const Shape shape = b.shape(table);
    if (shape.rank() == 3 && shape[0] == 1 && !b.has_batch(table)) {
      const std::vector<int64_t> dims = {shape[1], shape[2]};
      ASSIGN_OR_RETURN(table, b.add_node(layer, layer.name + (i == 1 ? "/cos" : "/sin"), "Reshape",
                                         {{"shape", dims}}, {table}));
    }
    tables.push_back(table);
  }
  return tables;
}

void complete_rotary(Attributes& a) { a.set("interleaved", a.get_int("interleaved", 0)); }

Outputs build_rotary(LayerBuilder& b, const ResolvedLayer& layer,
                     std::span<const TensorId> inputs) {
  const TensorId x = inputs[0];
  const Shape shape = b.shape(x);
  if (shape.rank() != 3) {
    return LayerBuilder::shape_error(
        layer, "needs a sequence [N, T, D], but its input is " + shape.to_string());
  }
  if (inputs.size() == 2) {
    return LayerBuilder::shape_error(
        layer, "inputs: names 2, expected 1, or 3 with tables of cosines and sines");
  }
  const int64_t heads = layer.attributes.get_int("num_heads", 1);
  if (shape[2] % heads != 0) {
    return LayerBuilder::shape_error(layer, "num_heads: " + std::to_string(heads) +
                                                " does not divide the width " +
                                                std::to_string(shape[2]));
  }
  const int64_t width = shape[2] / heads;
  const int64_t dim = layer.attributes.get_int("rotary_embedding_dim", width);
  if (dim > width || dim % 2 != 0) {
    return LayerBuilder::shape_error(layer, "rotary_embedding_dim: " + std::to_string(dim) +
                                                " is not possible, expected an even number up to "
                                                "the width of a head, " +
                                                std::to_string(width));
  }
  std::vector<TensorId> operands = {x};
  if (inputs.size() == 1) {
    ASSIGN_OR_RETURN(const std::vector<TensorId> tables, add_tables(b, layer, dim, shape[1]));
    operands.insert(operands.end(), tables.begin(), tables.end());
  } else {
    ASSIGN_OR_RETURN(const std::vector<TensorId> tables, given_tables(b, layer, inputs));
    operands.insert(operands.end(), tables.begin(), tables.end());
  }
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "RotaryEmbedding",
                              {{"num_heads", heads},
                               {"interleaved", layer.attributes.get_int("interleaved", 0)}},
                              std::move(operands)));
  return {{y}};
}

}  // namespace

std::vector<LayerKind> rotary_layers() {
  const auto positive = [](std::string_view name, double max) {
    return real_rule(name, false, {.max = max, .min_excluded = true});
  };
  return {{.op = "RotaryEmbedding",
           .field = "rotary_embedding",
           .inputs_max = 3,
           .attributes = {integer_rule("num_heads", true, 1, 1024), boolean_rule("interleaved"),
                          integer_rule("rotary_embedding_dim", false, 2, 512),
                          real_rule("theta", false, {.min = 1, .max = kThetaMax}),
                          choice_rule("scaling", {"none", "linear", "llama3", "yarn"}),
                          positive("factor", kScaleMax), positive("low_freq_factor", kScaleMax),
                          positive("high_freq_factor", kScaleMax),
                          integer_rule("original_positions", false, 1, kPositionsMax),
                          positive("attention_factor", kScaleMax), positive("beta_fast", kScaleMax),
                          positive("beta_slow", kScaleMax), boolean_rule("truncate")},
           .complete = complete_rotary,
           .build = build_rotary}};
}

}  // namespace trainyard
