// src/models/model_spec.h: a model as data, and how it becomes a forward graph.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/fields.h"
#include "src/base/result.h"
#include "src/graph/graph.h"

namespace trainyard {

/// One layer as a user writes it. `op` is the ONNX name; `attributes` use ONNX attribute names plus
/// the sizes that ONNX reads off weights (Gemm `units`, Conv `out_channels`). `inputs` names
/// earlier layers or "input"; empty means the layer before.
struct LayerSpec {
  std::string name;  // empty: made from the op and a counter, "conv1"
  std::string op;
  std::vector<std::string> inputs;
  Attributes attributes;
  /// In a block: attributes that take their value from the block's parameters.
  std::map<std::string, std::string> bind = {};
  /// Op "Use" (blocks.h): the block that stands here; `attributes` are its parameters' values.
  std::string block = {};
  std::optional<int64_t> repeat = {};  // in a row, numbered: "layer1/0/conv1"
  /// Of a layer that a block was written out to: "model.blocks[0].layers[2]", and `block` names it.
  std::string origin = {};
};
/// All but `origin`, which no spec holds.
template <FieldsOf<LayerSpec> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [name, op, inputs, attributes, bind, block, repeat, origin] = spec;
  visit("name", name, Written::kUnlessEmpty);
  visit("op", op);
  visit("inputs", inputs, Written::kUnlessEmpty);
  visit("attributes", attributes);
  visit("bind", bind, Written::kUnlessEmpty);
  visit("block", block, Written::kUnlessEmpty);
  visit("repeat", repeat);
}

/// Layers that are defined once and used by name (blocks.h).
struct BlockSpec {
  std::string name;
  std::vector<std::string> inputs;      // names inside the block; empty: "input"
  std::vector<std::string> parameters;  // names that `bind` may use
  Attributes defaults;                  // of parameters that a use may leave out
  std::vector<LayerSpec> layers;        // the last one is the block's output
};
template <FieldsOf<BlockSpec> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [name, inputs, parameters, defaults, layers] = spec;
  visit("name", name);
  visit("inputs", inputs, Written::kUnlessEmpty);
  visit("parameters", parameters, Written::kUnlessEmpty);
  visit("defaults", defaults, Written::kUnlessEmpty);
  visit("layers", layers);
}

/// A loss as a user writes it; kinds and attributes are those of src/models/loss.h. An empty op
/// follows the target: classes train by "SoftmaxCrossEntropyLoss", numbers by "MeanSquaredError".
struct LossSpec {
  std::string op;
  Attributes attributes = {};
};
template <FieldsOf<LossSpec> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [op, attributes] = spec;
  visit("op", op);
  visit("attributes", attributes);
}

/// Either `preset` with `parameters`, or `layers`.
struct ModelSpec {
  std::string preset;     // "mlp", "lenet5", or empty
  Attributes parameters;  // of the preset: hidden=[512, 512], activation="relu", dropout=0.1
  std::vector<LayerSpec> layers;
  LossSpec loss;
  std::vector<BlockSpec> blocks = {};  // for `layers`; each may use those before it
  std::string target = {};             // "input": the model learns its own input
};
template <FieldsOf<ModelSpec> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [preset, parameters, layers, loss, blocks, target] = spec;
  visit("preset", preset, Written::kUnlessEmpty);
  visit("parameters", parameters, preset.empty() ? Written::kUnlessEmpty : Written::kAlways);
  visit("layers", layers, Written::kUnlessEmpty);
  visit("loss", loss, Written::kUnlessEmpty);
  visit("blocks", blocks, Written::kUnlessEmpty);
  visit("target", target, Written::kUnlessEmpty);
}

/// What the data, or the spec, asks a model to give.
enum class TargetForm : uint8_t {
  kClass,      // one score per class: [N, outputs]; or one for two classes, the second one's
  kNumeric,    // numbers: [N, outputs]
  kNextToken,  // at each position one score per token of the vocabulary: [N, T, outputs]
  kInput,      // the input itself, whatever the data's target: [N, outputs]
};

/// A column of a table that holds categories.
struct CategoricalColumn {
  std::string name;
  int64_t count = 0;  // of categories

  bool operator==(const CategoricalColumn&) const = default;
};

/// What the data offers and asks: the shape of one input sample, and of one target.
struct ModelInterface {
  Shape input;             // [F] or [C, H, W] numbers, or [T] tokens
  int64_t vocabulary = 0;  // > 0: the input is I32 tokens in [0, vocabulary)
  TargetForm target = TargetForm::kClass;
  int64_t outputs = 0;   // classes K, numeric targets (1), the vocabulary, or the input's elements
  int64_t padding = -1;  // the token that fills short rows of text up; -1: there is none
  bool bytes = false;    // the input is an image of 8-bit pixels
  // Of a table, in the order in which they stand in the input, behind the numeric columns.
  std::vector<CategoricalColumn> categories = {};
  // Each of them is one number, 0 for a missing or unknown category and else 1 + its index; or one
  // number for each category (one-hot).
  bool category_codes = false;
  std::vector<int64_t> class_counts = {};  // training rows of each class; empty: not known

  /// The same table with its categories as codes.
  ModelInterface with_category_codes() const;
  bool classification() const { return target == TargetForm::kClass; }
  int64_t classes() const { return classification() ? std::max<int64_t>(outputs, 2) : 0; }
};

/// Low-rank additions to the weights of some layers (Hu et al. 2021); src/models/lora.h.
struct LoraSpec {
  int64_t rank = 0;  // 0: none
  double alpha = 0;  // B A is scaled by alpha / rank
  double dropout = 0;
  std::vector<std::string> targets = {};  // patterns of layers' names
};
template <FieldsOf<LoraSpec> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [rank, alpha, dropout, targets] = spec;
  visit("rank", rank);
  visit("alpha", alpha);
  visit("dropout", dropout);
  visit("targets", targets);
}

struct BuildOptions {
  int64_t batch_size = 1;
  bool training = true;       // dropout and batch statistics on; adds loss and target
  DType dtype = DType::kF32;  // F64 for gradient checks
  uint64_t seed = 0;          // keys dropout; weights are drawn by initialize_parameters()
  LoraSpec lora = {};
  bool class_shares = false;  // classes as target: the shares of each in a row, not one label
  std::stop_token stop = {};  // building looks at it layer by layer: CANCELLED/STOPPED
};

/// How a training program takes the loss over some of the classes (model.loss: sampled_softmax).
struct SampledLoss {
  int64_t samples = 0;
  std::string distribution = "log_uniform";  // or "uniform"
};

/// A layer that reads rows of a table by index, one node.
struct Lookup {
  std::string node;
  std::string field;    // where the spec says `sparse`: "model.layers[0].embedding.sparse"
  bool sparse = false;  // training reads, and updates, the rows that a batch names
};

struct Model {
  Graph graph;
  TensorId input = kNoTensor;   // [N, ...]
  TensorId target = kNoTensor;  // I32 classes [N] or tokens [N * T], shares of classes [N, K], or
                                // numbers [N, 1]; training only, and not where the input is it
  TensorId step =
      kNoTensor;  // I64 [1], the optimizer step from 0; present if an op draws random numbers
  TensorId output = kNoTensor;  // logits [N, K] or [N, T, V], prediction [N, 1], reconstruction
  TensorId loss = kNoTensor;    // [1]; training only
  // Training only: the graph has the loss over all classes, and whoever trains is to replace it
  // (src/parallel/sampled_head.h).
  std::optional<SampledLoss> sampling = {};
  std::vector<Lookup> lookups = {};        // embeddings of tokens; whoever trains looks at `sparse`
  std::vector<std::string> products = {};  // layers that LoraSpec::targets may match
};

/// Builds the forward graph. Refusals name the layer ("model.layers[3] 'conv2': kernel_shape:
/// ..."). A last layer whose units are left out gets interface.outputs. The output must be [N,
/// outputs].
Result<Model> build_model(const ModelSpec& spec, const ModelInterface& interface,
                          const BuildOptions& options);

/// The layer list a preset stands for; what users see when they ask how to write it by hand.
Result<std::vector<LayerSpec>> expand_preset(const ModelSpec& spec,
                                             const ModelInterface& interface);

std::vector<std::string> preset_names();

}  // namespace trainyard
