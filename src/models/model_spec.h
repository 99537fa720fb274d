// src/models/model_spec.h: a model as data, and the functions that build a forward graph from it.
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
/// the sizes that ONNX derives from weights (Gemm `units`, Conv `out_channels`). `inputs` names
/// earlier layers or "input"; if it is empty, the layer reads the one before it.
struct LayerSpec {
  std::string name;  // empty: the op and a counter, "conv1"
  std::string op;
  std::vector<std::string> inputs;
  Attributes attributes;
  /// Only in a block: maps names of attributes to the parameters of the block that give their
  /// values.
  std::map<std::string, std::string> bind = {};
  /// Only for op "Use" (blocks.h): the block that is used here; `attributes` are then the values of
  /// its parameters.
  std::string block = {};
  // The number of copies in a row, named "layer1/0/conv1", "layer1/1/conv1", ...
  std::optional<int64_t> repeat = {};
  /// Only for a layer that comes from a block, which `block` then names: its place in the spec,
  /// "model.blocks[0].layers[2]".
  std::string origin = {};
};
/// Visits all fields but `origin`, which is not part of a spec.
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
  std::vector<std::string> inputs;      // names of the inputs inside the block; empty: "input"
  std::vector<std::string> parameters;  // names that `bind` may refer to
  Attributes defaults;                  // values of the parameters that a use may omit
  std::vector<LayerSpec> layers;        // the last one's output is the block's output
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

/// A loss as a user writes it; kinds and attributes are those of src/models/loss.h. If `op` is
/// empty, the target decides: "SoftmaxCrossEntropyLoss" for classes, "MeanSquaredError" for
/// numbers.
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

/// A model is given either as `preset` with `parameters`, or as `layers`.
struct ModelSpec {
  std::string preset;  // "mlp", "lenet5", or empty
  // The preset's parameters, for example hidden=[512, 512], activation="relu", dropout=0.1.
  Attributes parameters;
  std::vector<LayerSpec> layers;
  LossSpec loss;
  std::vector<BlockSpec> blocks = {};  // used by `layers`; each block may use earlier ones
  std::string target = {};             // empty, or "input": the model reconstructs its input
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

/// The outputs that a model must have, as determined by the data or the spec.
enum class TargetForm : uint8_t {
  kClass,  // one score per class, [N, outputs]; for two classes also the second one's alone, [N, 1]
  kNumeric,    // numbers: [N, outputs]
  kNextToken,  // at each position, one score per token of the vocabulary: [N, T, outputs]
  kInput,      // the input itself, instead of the data's target: [N, outputs]
};

/// A categorical column of a table.
struct CategoricalColumn {
  std::string name;
  int64_t count = 0;  // number of categories

  bool operator==(const CategoricalColumn&) const = default;
};

/// With more classes than this, an interface does not have their names.
inline constexpr int64_t kNamedClassesMax = 65536;

/// The shape of one input sample and of one target of a dataset.
struct ModelInterface {
  Shape input;             // [F] or [C, H, W] numbers, or [T] tokens
  int64_t vocabulary = 0;  // > 0: the input is I32 tokens in [0, vocabulary)
  TargetForm target = TargetForm::kClass;
  int64_t outputs = 0;   // classes K, numeric targets (1), the vocabulary, or the input's elements
  int64_t padding = -1;  // the token that pads short rows of text; -1: none
  bool bytes = false;    // the input is an image of 8-bit pixels
  // The categorical columns of a table. In the input they follow the numeric columns, in this
  // order.
  std::vector<CategoricalColumn> categories = {};
  // true: each categorical column is one number, 0 for a missing or unknown category, else 1 + the
  // category's index. false: one number per category (one-hot).
  bool category_codes = false;
  std::vector<int64_t> class_counts = {};     // training rows of each class; empty: unknown
  std::vector<std::string> class_names = {};  // empty: none, or too many
  // Only with tokens: a row holds several documents one after the other, which do not see each
  // other (Model::positions). Padding behind the last one has positions 0 and target -1.
  bool documents = false;

  /// Returns this interface with categories as codes.
  ModelInterface with_category_codes() const;
  bool classification() const { return target == TargetForm::kClass; }
  int64_t classes() const { return classification() ? std::max<int64_t>(outputs, 2) : 0; }
};

/// Low-rank additions to the weights of some layers (Hu et al. 2021); src/models/lora.h.
struct LoraSpec {
  int64_t rank = 0;  // 0: none
  double alpha = 0;  // the factor of B A is alpha / rank, or with `rank_scaling` alpha / sqrt(rank)
  double dropout = 0;
  std::vector<std::string> targets = {};  // patterns of layers' names, or PEFT's names (lora.h)
  std::string rank_scaling = "linear";    // or "sqrt": rsLoRA (Kalajdzievski 2023)
};
template <FieldsOf<LoraSpec> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [rank, alpha, dropout, targets, rank_scaling] = spec;
  visit("rank", rank);
  visit("alpha", alpha);
  visit("dropout", dropout);
  visit("targets", targets);
  visit("rank_scaling", rank_scaling);
}

/// A graph that continues texts token by token: its input has only the new tokens, and each layer
/// of attention keeps the keys and values of earlier ones (src/models/generation.h).
struct GenerationShape {
  int64_t capacity = 0;    // tokens of a text whose keys and values are kept; 0: no such graph
  int64_t new_tokens = 1;  // tokens that a run reads of each text
  bool scores = true;      // false: a run only fills the caches, and nothing else is computed
};

struct BuildOptions {
  int64_t batch_size = 1;
  bool training = true;       // enables dropout and batch statistics, and adds loss and target
  DType dtype = DType::kF32;  // F64 only for gradient checks
  uint64_t seed = 0;          // keys dropout; initialize_parameters() draws the weights
  LoraSpec lora = {};
  // The target of a row is a distribution over the classes, as mixed rows need, instead of a label.
  bool class_shares = false;
  // Only without `training`. A run reads generation.new_tokens of batch_size texts.
  GenerationShape generation = {};
  std::stop_token stop = {};  // checked before each layer: CANCELLED/STOPPED
};

/// Settings of a training loss over a sample of the classes (model.loss: sampled_softmax).
struct SampledLoss {
  int64_t samples = 0;
  std::string distribution = "log_uniform";  // or "uniform"
};

/// A layer that looks up rows of a table by index, in one node.
struct Lookup {
  std::string node;
  std::string field;    // where the spec has `sparse`: "model.layers[0].embedding.sparse"
  bool sparse = false;  // training reads and updates only the rows that a batch names
};

struct Model {
  Graph graph;
  TensorId input = kNoTensor;  // [N, ...]
  // Only in training: I32 classes [N] or tokens [N * T], shares of classes [N, K], or numbers [N,
  // 1]. Absent if the input is the target.
  TensorId target = kNoTensor;
  // I64 [1], the optimizer step from 0; only if an op draws random numbers.
  TensorId step = kNoTensor;
  // I32 [N, T], each token's place in its document; only if rows hold documents and a layer asks.
  // For generation the places of the new tokens in their texts.
  TensorId positions = kNoTensor;
  TensorId output = kNoTensor;  // logits [N, K] or [N, T, V], prediction [N, 1], reconstruction
  TensorId loss = kNoTensor;    // [1]; training only
  // Training only, for a loss over sampled classes: the graph has the loss over all classes, which
  // the trainer must replace (src/parallel/sampled_head.h).
  std::optional<SampledLoss> sampling = {};
  std::vector<Lookup> lookups = {};        // embeddings of tokens; the trainer handles `sparse`
  std::vector<std::string> products = {};  // layers that patterns in LoraSpec::targets may match
  // The layer that recipe.lora trains in full, as PEFT's modules_to_save: the new last layer of a
  // language model that classifies, unless it is a target itself. Empty: none.
  std::string trained_layer = {};
};

/// Builds the forward graph. Errors name the layer ("model.layers[3] 'conv2': kernel_shape: ...").
/// A last layer without units gets interface.outputs. The output must be [N, outputs].
Result<Model> build_model(const ModelSpec& spec, const ModelInterface& interface,
                          const BuildOptions& options);

/// Returns the layer list of a preset, which is also shown to users who want to write it by hand.
Result<std::vector<LayerSpec>> expand_preset(const ModelSpec& spec,
                                             const ModelInterface& interface);

std::vector<std::string> preset_names();

}  // namespace trainyard
