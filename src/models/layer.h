// src/models/layer.h: the layers that a model may contain. A layer kind describes in one place
// which attributes users may set, their defaults, and the nodes that the layer becomes.
// src/models/layers/ has one file per family of kinds. Names and meanings are those of ONNX, plus
// `bias` and the sizes that ONNX derives from weights (Gemm `units`, Conv `out_channels`).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/models/attribute_rule.h"
#include "src/models/model_spec.h"

namespace trainyard {

// Bounds far above any sensible model, but low enough that no product of them overflows before
// Shape::fits() is called.
constexpr double kUnitsMax = 1048576;
constexpr double kChannelsMax = 65536;
constexpr double kWindowMax = 1024;
constexpr double kEmbeddingsMax = 16777216;

constexpr size_t kLayersMax = 10000;  // after expansion of blocks
/// Limit of the number of tensors in a model's forward graph plus the number of inputs of its
/// layers. 10,000 dense layers have 40,000 of both, 10,000 batch normalizations 80,000; planning
/// takes about 10 us for each.
constexpr size_t kConnectionsMax = 150'000;

class LayerBuilder;
struct ResolvedLayer;

struct LayerKind {
  std::string_view op;     // "MaxPool"
  std::string_view field;  // "max_pool": key in a spec file, and beginning of default layer names
  int64_t inputs = 1;      // fewest inputs that the layer takes
  int64_t inputs_max = 1;  // most inputs that the layer takes
  std::vector<AttributeRule> attributes = {};
  /// Fills in defaults and expands short forms. Null: the attributes need no completion.
  void (*complete)(Attributes& attributes) = nullptr;
  /// Adds the layer's nodes and parameters and returns its outputs. Later layers read the first
  /// output as "name", and each as "name.0", "name.1" and so on. Null: the layer is one node of
  /// `op` with the same attributes.
  Result<std::vector<TensorId>> (*build)(LayerBuilder& builder, const ResolvedLayer& layer,
                                         std::span<const TensorId> inputs) = nullptr;
};

/// Returns all layer kinds, in the order of the families, and the kind of a given op, or null.
const std::vector<LayerKind>& layer_kinds();
const LayerKind* find_layer_kind(std::string_view op);

// Returns the layer kinds of each family.
std::vector<LayerKind> dense_layers();
std::vector<LayerKind> image_layers();
std::vector<LayerKind> elementwise_layers();
std::vector<LayerKind> normalization_layers();
std::vector<LayerKind> shape_layers();
std::vector<LayerKind> arithmetic_layers();
std::vector<LayerKind> rotary_layers();
std::vector<LayerKind> sequence_layers();
std::vector<LayerKind> text_layers();
std::vector<LayerKind> category_layers();

/// Returns the default embedding size of a categorical column with that many categories: fastai's
/// rule, which counts the rows of the table, one per category and one for missing or unknown
/// values.
int64_t category_embedding_dim(int64_t categories);
/// Returns the error text for an unknown column: "'cutt' is not a categorical column, did you mean
/// 'cut'?"
std::string no_column(const std::string& name, const ModelInterface& interface);

/// A layer whose names, attributes and inputs have been checked.
struct ResolvedLayer {
  std::string name;
  const LayerKind* kind = nullptr;
  Attributes attributes;            // including defaults
  std::vector<std::string> inputs;  // "input", or earlier layers: "conv1", "split1.1"
  std::string path;                 // "model.layers[3]" or "model.lenet5"
  std::string where;                // "model.layers[3] 'conv2'"
};

/// Returns whether `part` is one valid part of a name, [a-z][a-z0-9_]* with at most 63 characters.
/// kNameRule is the error text for an invalid name.
bool is_name_part(std::string_view part);
constexpr const char* kNameRule =
    " is not a name, expected a letter, then letters, digits and _, lower case, at most 63";

/// Returns the names of all layers of a list. A layer without a name gets that of its op (or block)
/// and a counter.
std::vector<std::string> name_layers(const std::vector<LayerSpec>& layers);

/// Checks names, attributes and inputs of all layers, and reports all problems together. `preset`
/// is empty if the user wrote the list.
Result<std::vector<ResolvedLayer>> resolve_layers(const std::vector<LayerSpec>& layers,
                                                  const std::string& preset);

/// The graph under construction, to which a layer's `build` adds nodes and parameters.
class LayerBuilder {
 public:
  LayerBuilder(const ModelInterface& interface, const BuildOptions& options)
      : interface_(interface), options_(options) {}

  const ModelInterface& interface() const { return interface_; }
  const BuildOptions& options() const { return options_; }
  Model& model() { return model_; }
  TensorId input() const { return model_.input; }  // the model's input
  const Model& model() const { return model_; }
  const Graph& graph() const { return model_.graph; }
  const TensorType& type(TensorId id) const { return model_.graph.tensor(id).type; }
  const Shape& shape(TensorId id) const { return type(id).shape; }
  /// Returns true while the model's last layer is built, whose size may follow from the dataset.
  bool is_last() const { return is_last_; }
  void set_last(bool last) { is_last_ = last; }

  TensorId add_tensor(std::string name, Shape shape, DType dtype, Role role,
                      Initializer initializer);
  /// Adds a trained tensor "<layer>.<suffix>". Refuses a shape that is too large.
  Result<TensorId> add_parameter(const ResolvedLayer& layer, std::string_view suffix, Shape shape,
                                 Initializer initializer);
  /// Adds a parameter with PyTorch's default for Linear and Conv: weight and bias uniform in
  /// +-1/sqrt(fan_in).
  Result<TensorId> add_fan_in_parameter(const ResolvedLayer& layer, std::string_view suffix,
                                        Shape shape, int64_t fan_in);
  struct Weights {
    TensorId weight = kNoTensor, bias = kNoTensor;
    bool tied = false;  // the weight belongs to another layer
  };
  /// Adds "<layer>.weight" of `shape` and, unless `bias: false`, "<layer>.bias" of `units`. The
  /// layer's `initializer` determines their first values (weight_rules()). `fan_in` and
  /// `fan_out` are defined as in PyTorch.
  Result<Weights> add_weights(const ResolvedLayer& layer, Shape shape, int64_t units,
                              int64_t fan_in, int64_t fan_out);
  /// Adds x W^T + b as a node called `name`, with a low-rank addition if the layer is a target of
  /// options().lora. A layer with a tied weight never is a target.
  Result<TensorId> add_product(const ResolvedLayer& layer, const std::string& name, TensorId x,
                               const Weights& w);
  /// Adds a parameter or state of `size` equal values.
  TensorId add_constant(const ResolvedLayer& layer, std::string_view suffix, int64_t size,
                        Role role, double value);
  /// Adds a node and returns its first output. `saved` are the suffixes of the further outputs,
  /// which the op keeps for its backward pass; "" leaves an output out. Errors name the layer.
  Result<TensorId> add_node(const ResolvedLayer& layer, std::string name, std::string_view op,
                            Attributes attributes, std::vector<TensorId> inputs,
                            std::vector<std::string> saved = {});
  /// Adds a node with `count` outputs and returns all of them: "name", "name.1", "name.2", ...
  Result<std::vector<TensorId>> add_node_with_outputs(const ResolvedLayer& layer,
                                                      std::string_view op, Attributes attributes,
                                                      std::vector<TensorId> inputs, int64_t count);
  /// Returns true if axis 0 of the tensor is the batch, because the tensor depends on the data. In
  /// parameters, constants, and tensors computed from these alone, axis 0 has size 1.
  bool has_batch(TensorId id);
  /// Returns the graph input with the number of the optimizer step, which keys random numbers. The
  /// first call creates it.
  TensorId step();
  /// Returns the graph input with each token's place in its document, I32 [N, T]: the document of
  /// token i begins at i - positions[i]. The first call creates it. kNoTensor if a row is one
  /// document, whose tokens have the places 0..T-1. Its name, "input/positions", is that of no
  /// layer.
  TensorId positions();

  /// Errors about the layer as a whole (SHAPE_MISMATCH), or about a missing field of it.
  static Error shape_error(const ResolvedLayer& layer, const std::string& description);
  static Error required_error(const ResolvedLayer& layer, std::string_view attribute,
                              const std::string& description);
  /// Refuses axis 0, the batch, and axes that `x` does not have. `attribute` is the name in the
  /// message.
  Status need_sample_axes(const ResolvedLayer& layer, std::string_view attribute,
                          const std::vector<int64_t>& axes, TensorId x) const;
  /// Refuses an `x` that is not a batch of images [N, C, H, W].
  Status need_image(const ResolvedLayer& layer, TensorId x) const;

 private:
  bool is_adapted(const std::string& layer) const;
  Result<TensorId> add_lora(const ResolvedLayer& layer, const std::string& name, TensorId x,
                            const Weights& w);

  const ModelInterface& interface_;
  const BuildOptions& options_;
  Model model_;
  std::map<TensorId, bool> has_batch_;  // cache of has_batch()
  bool is_last_ = false;
};

/// Returns the attributes that add_weights reads: `bias`, `initializer` and `initializer_std`.
///   uniform         weight and bias uniform in +-1/sqrt(fan_in): the default, as in PyTorch
///   kaiming_normal  weight normal with standard deviation sqrt(2/fan_out), bias 0 (He et al. 2015)
///   normal          weight normal with standard deviation initializer_std, bias 0
std::vector<AttributeRule> weight_rules();

/// Returns the inputs of a product. Without a bias there are only two, without a kNoTensor in its
/// place.
std::vector<TensorId> with_bias(TensorId x, TensorId weight, TensorId bias);

}  // namespace trainyard
