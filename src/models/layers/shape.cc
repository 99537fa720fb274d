// Layers that move elements and change none. Shapes leave the batch out.
#include <algorithm>

#include "src/models/layer.h"

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

void complete_flatten(Attributes& a) { a.set("axis", int64_t{1}); }

void complete_reshape(Attributes& a) { a.set("shape", spell_out(a, "shape", 1, {})); }

Outputs build_reshape(LayerBuilder& b, const ResolvedLayer& layer,
                      std::span<const TensorId> inputs) {
  const std::vector<int64_t> wanted = layer.attributes.get_ints("shape", {});
  const int64_t batch = b.options().batch_size;
  const int64_t elements = b.shape(inputs[0]).elements() / batch;
  int64_t known = 1;
  int64_t open = 0;
  for (const int64_t d : wanted) {
    if (d == 0 || (d < 0 && ++open > 1)) {
      return LayerBuilder::shape_error(
          layer, "shape: " + Shape(wanted).to_string() +
                     " is not possible, expected sizes of at least 1 and at most one -1");
    }
    if (d > 0) known = known > elements ? known : known * d;  // past `elements` it cannot fit
  }
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), wanted.begin(), wanted.end());
  if (open == 1 && elements % known == 0) {
    std::ranges::replace(dims, -1, elements / known);
    known = elements;
  }
  if (known != elements) {
    return LayerBuilder::shape_error(layer, "shape: " + Shape(wanted).to_string() +
                                                " does not hold the " + std::to_string(elements) +
                                                " elements of one sample " +
                                                b.shape(inputs[0]).to_string());
  }
  ASSIGN_OR_RETURN(const TensorId y, b.add_node(layer, layer.name, "Reshape",
                                                {{"shape", std::move(dims)}}, {inputs[0]}));
  return {{y}};
}

}  // namespace

std::vector<LayerKind> shape_layers() {
  return {{.op = "Flatten",
           .field = "flatten",
           .attributes = {integer_rule("axis", false, 1, 1)},
           .complete = complete_flatten},
          {.op = "Reshape",
           .field = "reshape",
           .attributes = {dims_rule("shape", true, -1, kUnitsMax)},
           .complete = complete_reshape,
           .build = build_reshape}};
}

}  // namespace trainyard
