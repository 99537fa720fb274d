// Fully connected layers.
#include "src/models/layer.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

void complete_gemm(Attributes& a) { a.set("bias", a.get_int("bias", 1)); }

// If the last layer has no units, their number follows from the dataset's target.
Outputs build_gemm(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId> inputs) {
  TensorId x = inputs[0];
  if (b.shape(x).rank() > 2) {
    ASSIGN_OR_RETURN(
        x, b.add_node(layer, layer.name + "/flatten", "Flatten", {{"axis", int64_t{1}}}, {x}));
  }
  int64_t units = layer.attributes.get_int("units", 0);
  if (units == 0) {
    if (!b.is_last()) {
      return LayerBuilder::required_error(
          layer, "units", "is required for every layer but the last: a whole number in 1..1048576");
    }
    units = b.interface().outputs;
  }
  const int64_t features = b.shape(x)[1];
  ASSIGN_OR_RETURN(const LayerBuilder::Weights w,
                   b.add_weights(layer, Shape{units, features}, units, features, units));
  ASSIGN_OR_RETURN(const TensorId y, b.add_product(layer, layer.name, x, w));
  return {{y}};
}

}  // namespace

std::vector<LayerKind> dense_layers() {
  std::vector<AttributeRule> gemm = weight_rules();
  gemm.insert(gemm.begin(), integer_rule("units", false, 1, kUnitsMax));
  return {{.op = "Gemm",
           .field = "gemm",
           .attributes = std::move(gemm),
           .complete = complete_gemm,
           .build = build_gemm}};
}

}  // namespace trainyard
