// src/models/layer.h: the layers that a model may contain. A layer kind says in one place what a
// user may say about it, which defaults it has, and which nodes it becomes; kinds stand in
// src/models/layers/, one file per family. Names and meanings are ONNX's, plus the sizes that ONNX
// reads off weights (Gemm `units`, Conv `out_channels`) and `bias`.
#pragma once

#include <cstdint>
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
std::vector<LayerKind> text_layers();

/// A layer whose names, attributes and wiring are known to be good.
struct ResolvedLayer {
  std::string name;
  const LayerKind* kind = nullptr;
  Attributes attributes;            // complete
  std::vector<std::string> inputs;  // "input", or earlier layers: "conv1", "split1.1"
  std::string path;                 // "model.layers[3]" or "model.lenet5"
  std::string where;                // "model.layers[3] 'conv2'"
};

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
  /// A parameter or state of `size` equal values.
  TensorId add_constant(const ResolvedLayer& layer, std::string_view suffix, int64_t size,
                        Role role, double value);
  /// `saved` names the outputs behind the first that the op keeps for its backward pass, "" where
  /// it keeps none. Refusals name the layer. Returns the first output.
  Result<TensorId> add_node(const ResolvedLayer& layer, std::string name, std::string_view op,
                            Attributes attributes, std::vector<TensorId> inputs,
                            std::vector<std::string> saved = {});
  /// The step number as a graph input, made when first asked for: randomness is keyed by it.
  TensorId step();

  /// Refusals: SHAPE_MISMATCH about the layer as a whole; a field of it that is missing.
  static Error shape_error(const ResolvedLayer& layer, const std::string& description);
  static Error required_error(const ResolvedLayer& layer, std::string_view attribute,
                              const std::string& description);
  /// Refuses what is not a batch of images [N, C, H, W].
  Status need_image(const ResolvedLayer& layer, TensorId x) const;

 private:
  const ModelInterface& interface_;
  const BuildOptions& options_;
  Model model_;
  bool is_last_ = false;
};

/// A left-out bias is a missing last input, not kNoTensor in the middle.
std::vector<TensorId> with_bias(TensorId x, TensorId weight, TensorId bias);

}  // namespace trainyard
