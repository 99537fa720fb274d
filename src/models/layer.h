// src/models/layer.h: the layers that a model may contain. A layer kind says in one place what a
// user may say about it, which defaults it has, and which nodes it becomes; kinds stand in
// src/models/layers/, one file per family. Names and meanings are ONNX's, plus the sizes that ONNX
// reads off weights (Gemm `units`, Conv `out_channels`) and `bias`.
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

// Bounds far above any sensible model and low enough that no product of them overflows before
// Shape::fits() has looked at it.
constexpr double kUnitsMax = 1048576;
constexpr double kChannelsMax = 65536;
constexpr double kWindowMax = 1024;
constexpr double kEmbeddingsMax = 16777216;

constexpr size_t kLayersMax = 10000;  // blocks written out
/// Tensors of a model's forward graph, and references of layers to them. Ten thousand dense layers
/// have 40,000, ten thousand batch normalizations 80,000; planning takes about 10 us for each.
constexpr size_t kConnectionsMax = 150'000;

class LayerBuilder;
struct ResolvedLayer;

struct LayerKind {
  std::string_view op;     // "MaxPool"
  std::string_view field;  // "max_pool": the key in a spec file, and the stem of default names
  int64_t inputs = 1;      // how many inputs the layer takes, at least
  int64_t inputs_max = 1;  // and at most
  std::vector<AttributeRule> attributes = {};
  /// Fills defaults in and spells short forms out. Null: the attributes are complete as given.
  void (*complete)(Attributes& attributes) = nullptr;
  /// Adds the layer's nodes and parameters; returns its outputs, of which later layers read the
  /// first as "name" and all as "name.0", "name.1". Null: one node of `op` with the attributes.
  Result<std::vector<TensorId>> (*build)(LayerBuilder& builder, const ResolvedLayer& layer,
                                         std::span<const TensorId> inputs) = nullptr;
};

/// All kinds, in the order of the families; and one by its op, or null.
const std::vector<LayerKind>& layer_kinds();
const LayerKind* find_layer_kind(std::string_view op);

// The families.
std::vector<LayerKind> dense_layers();
std::vector<LayerKind> image_layers();
std::vector<LayerKind> elementwise_layers();
std::vector<LayerKind> normalization_layers();
std::vector<LayerKind> shape_layers();
std::vector<LayerKind> arithmetic_layers();
std::vector<LayerKind> sequence_layers();
std::vector<LayerKind> text_layers();
std::vector<LayerKind> category_layers();

/// Numbers of a category's vector where nothing else is said: fastai's rule, by the table's rows,
/// which are the column's categories and one for what is missing or unknown.
int64_t category_embedding_dim(int64_t categories);
/// "'cutt' is not a categorical column, did you mean 'cut'?"
std::string no_column(const std::string& name, const ModelInterface& interface);

/// A layer whose names, attributes and wiring are known to be good.
struct ResolvedLayer {
  std::string name;
  const LayerKind* kind = nullptr;
  Attributes attributes;            // complete
  std::vector<std::string> inputs;  // "input", or earlier layers: "conv1", "split1.1"
  std::string path;                 // "model.layers[3]" or "model.lenet5"
  std::string where;                // "model.layers[3] 'conv2'"
};

/// One part of a name: [a-z][a-z0-9_]*, at most 63 characters; and what to say about another.
bool is_name_part(std::string_view part);
constexpr const char* kNameRule =
    " is not a name, expected a letter, then letters, digits and _, lower case, at most 63";

/// The names of all layers of a list: those given, and for the others the op (or the block) and a
/// counter.
std::vector<std::string> name_layers(const std::vector<LayerSpec>& layers);

/// Checks names, attributes and wiring of all layers; problems come all at once. `preset` is empty
/// for a layer list of the user's.
Result<std::vector<ResolvedLayer>> resolve_layers(const std::vector<LayerSpec>& layers,
                                                  const std::string& preset);

/// What a layer's `build` works with: the graph under construction.
class LayerBuilder {
 public:
  LayerBuilder(const ModelInterface& interface, const BuildOptions& options)
      : interface_(interface), options_(options) {}

  const ModelInterface& interface() const { return interface_; }
  const BuildOptions& options() const { return options_; }
  Model& model() { return model_; }
  TensorId input() const { return model_.input; }  // of the model
  const Model& model() const { return model_; }
  const Graph& graph() const { return model_.graph; }
  const TensorType& type(TensorId id) const { return model_.graph.tensor(id).type; }
  const Shape& shape(TensorId id) const { return type(id).shape; }
  /// True while the model's last layer is built: its size may follow from the dataset.
  bool is_last() const { return is_last_; }
  void set_last(bool last) { is_last_ = last; }

  TensorId add_tensor(std::string name, Shape shape, DType dtype, Role role,
                      Initializer initializer);
  /// A trained tensor "<layer>.<suffix>". Refuses a shape that is too large.
  Result<TensorId> add_parameter(const ResolvedLayer& layer, std::string_view suffix, Shape shape,
                                 Initializer initializer);
  /// PyTorch's default for Linear and Conv: weight and bias uniform in +-1/sqrt(fan_in).
  Result<TensorId> add_fan_in_parameter(const ResolvedLayer& layer, std::string_view suffix,
                                        Shape shape, int64_t fan_in);
  /// "<layer>.weight" of `shape` and, unless `bias: false`, "<layer>.bias" of `units`, drawn as the
  /// layer's `initializer` says (weight_rules below). `fan_in` and `fan_out` are PyTorch's.
  struct Weights {
    TensorId weight = kNoTensor, bias = kNoTensor;
    bool tied = false;  // the weight is another layer's
  };
  Result<Weights> add_weights(const ResolvedLayer& layer, Shape shape, int64_t units,
                              int64_t fan_in, int64_t fan_out);
  /// x W^T + b, a node called `name`; with the low-rank addition where the layer is a target of
  /// options().lora. A tied weight never is.
  Result<TensorId> add_product(const ResolvedLayer& layer, const std::string& name, TensorId x,
                               const Weights& w);
  /// A parameter or state of `size` equal values.
  TensorId add_constant(const ResolvedLayer& layer, std::string_view suffix, int64_t size,
                        Role role, double value);
  /// `saved` names the outputs behind the first that the op keeps for its backward pass, "" where
  /// it keeps none. Refusals name the layer. Returns the first output.
  Result<TensorId> add_node(const ResolvedLayer& layer, std::string name, std::string_view op,
                            Attributes attributes, std::vector<TensorId> inputs,
                            std::vector<std::string> saved = {});
  /// As add_node, for an op with several outputs: all of them, "name", "name.1", "name.2", ...
  Result<std::vector<TensorId>> add_node_with_outputs(const ResolvedLayer& layer,
                                                      std::string_view op, Attributes attributes,
                                                      std::vector<TensorId> inputs, int64_t count);
  /// True if axis 0 of the tensor is the batch: it depends on the data. Parameters, constants and
  /// what is computed from them alone have size 1 there.
  bool has_batch(TensorId id);
  /// The step number as a graph input, created on first use: randomness is keyed by it.
  TensorId step();

  /// Refusals: SHAPE_MISMATCH about the layer as a whole; a field of it that is missing.
  static Error shape_error(const ResolvedLayer& layer, const std::string& description);
  static Error required_error(const ResolvedLayer& layer, std::string_view attribute,
                              const std::string& description);
  /// Refuses axes of an attribute that `x` does not have, and axis 0, the batch.
  Status need_sample_axes(const ResolvedLayer& layer, std::string_view attribute,
                          const std::vector<int64_t>& axes, TensorId x) const;
  /// Refuses what is not a batch of images [N, C, H, W].
  Status need_image(const ResolvedLayer& layer, TensorId x) const;

 private:
  bool is_lora_target(const std::string& layer) const;
  Result<TensorId> add_lora(const ResolvedLayer& layer, const std::string& name, TensorId x,
                            const Weights& w);

  const ModelInterface& interface_;
  const BuildOptions& options_;
  Model model_;
  std::map<TensorId, bool> has_batch_;  // known so far
  bool is_last_ = false;
};

/// What add_weights reads: `bias`, `initializer` and `initializer_std`.
///   uniform         weight and bias uniform in +-1/sqrt(fan_in): PyTorch's default, and ours
///   kaiming_normal  weight normal with deviation sqrt(2/fan_out), bias 0 (He et al. 2015)
///   normal          weight normal with deviation initializer_std, bias 0
std::vector<AttributeRule> weight_rules();

/// A left-out bias is a missing last input, not kNoTensor in the middle.
std::vector<TensorId> with_bias(TensorId x, TensorId weight, TensorId bias);

}  // namespace trainyard
