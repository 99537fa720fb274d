// Layers that move elements without changing them.
//
// Axes are numbered as in ONNX: axis 0 is the batch, the axes of a sample begin at 1, and negative
// axes count from the end. Axis 0 is refused, since samples must not mix. Shapes that users write
// do not include the batch.
#include <algorithm>
#include <numeric>

#include "src/models/layer.h"
#include "src/ops/concat.h"  // kPartsMax

namespace trainyard {

namespace {

using Outputs = Result<std::vector<TensorId>>;

void complete_flatten(Attributes& a) { a.set("axis", int64_t{1}); }

void complete_reshape(Attributes& a) { a.set("shape", spell_out(a, "shape", 1, {})); }

Outputs build_reshape(LayerBuilder& b, const ResolvedLayer& layer,
                      std::span<const TensorId> inputs) {
  const std::vector<int64_t> wanted = layer.attributes.get_ints("shape", {});
  const int64_t batch = b.shape(inputs[0])[0];  // 1 for a tensor computed from parameters alone
  const int64_t elements = b.shape(inputs[0]).elements() / batch;
  int64_t known = 1;
  int64_t open = 0;
  for (const int64_t d : wanted) {
    if (d == 0 || (d < 0 && ++open > 1)) {
      return LayerBuilder::shape_error(
          layer, "shape: " + Shape(wanted).to_string() +
                     " is not possible, expected sizes of at least 1 and at most one -1");
    }
    if (d > 0) known = known > elements ? known : known * d;  // capped, so that it cannot overflow
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

void complete_axis(Attributes& a) { a.set("axis", a.get_int("axis", 1)); }

void complete_axes(Attributes& a) { a.set("axes", spell_out(a, "axes", 1, {})); }

// A single number pads all four sides of images. Without `axes`, pads are for the last axes.
Outputs build_pad(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId> inputs) {
  const TensorId x = inputs[0];
  const int64_t rank = b.shape(x).rank();
  Attributes attributes = layer.attributes;
  std::vector<int64_t> pads = spell_out(attributes, "pads", 1, {});
  if (pads.size() == 1) {
    if (Status s = b.need_image(layer, x); !s.ok()) return std::move(s).error();
    pads.resize(4, pads[0]);
  }
  const auto count = static_cast<int64_t>(pads.size() / 2);
  if (attributes.find("axes") == nullptr && (pads.size() % 2 != 0 || count >= rank)) {
    return LayerBuilder::shape_error(layer, "pads: has " + std::to_string(pads.size()) +
                                                " entries, expected two for each of 1.." +
                                                std::to_string(rank - 1) +
                                                " axes of one sample of " + b.shape(x).to_string());
  }
  std::vector<int64_t> last(static_cast<size_t>(count));
  std::iota(last.begin(), last.end(), rank - count);
  std::vector<int64_t> axes = spell_out(attributes, "axes", 1, std::move(last));
  if (Status s = b.need_sample_axes(layer, "axes", axes, x); !s.ok()) return std::move(s).error();
  attributes.set("pads", std::move(pads));
  attributes.set("axes", std::move(axes));
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "Pad", std::move(attributes), {x}));
  return {{y}};
}

// Adds one node of the layer's op that works on axes of the sample.
Outputs build_on_axes(LayerBuilder& b, const ResolvedLayer& layer, TensorId x,
                      std::vector<int64_t> axes, Attributes attributes) {
  if (Status s = b.need_sample_axes(layer, "axes", axes, x); !s.ok()) return std::move(s).error();
  attributes.set("axes", std::move(axes));
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, layer.kind->op, std::move(attributes), {x}));
  return {{y}};
}

// If one input of a Concat has the batch and another is a parameter or constant, the latter is
// repeated for every sample, as for a class token in front of a sequence.
Result<TensorId> with_batch(LayerBuilder& b, const ResolvedLayer& layer, TensorId x,
                            const std::string& suffix) {
  const int64_t batch = b.options().batch_size;
  if (b.has_batch(x) || b.shape(x).rank() == 0) return x;
  std::vector<int64_t> dims(b.shape(x).dims().size(), 1);
  dims[0] = batch;
  return b.add_node(layer, layer.name + "/" + suffix, "Expand", {{"shape", std::move(dims)}}, {x});
}

Outputs build_concat(LayerBuilder& b, const ResolvedLayer& layer,
                     std::span<const TensorId> inputs) {
  const int64_t axis = layer.attributes.get_int("axis", 1);
  if (Status s = b.need_sample_axes(layer, "axis", {axis}, inputs[0]); !s.ok()) {
    return std::move(s).error();
  }
  std::vector<TensorId> parts(inputs.begin(), inputs.end());
  if (std::ranges::any_of(parts, [&](TensorId x) { return b.has_batch(x); })) {
    for (size_t i = 0; i < parts.size(); ++i) {
      ASSIGN_OR_RETURN(parts[i], with_batch(b, layer, parts[i], "expand" + std::to_string(i)));
    }
  }
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "Concat", {{"axis", axis}}, std::move(parts)));
  return {{y}};
}

Outputs build_split(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId> inputs) {
  const int64_t axis = layer.attributes.get_int("axis", 1);
  if (Status s = b.need_sample_axes(layer, "axis", {axis}, inputs[0]); !s.ok()) {
    return std::move(s).error();
  }
  const std::vector<int64_t> sizes = layer.attributes.get_ints("split", {});
  const int64_t count = layer.attributes.get_int("num_outputs", 0);
  if (sizes.empty() == (count == 0)) {
    return LayerBuilder::required_error(
        layer, "split",
        "is given together with num_outputs, or both are missing; expected exactly one of them");
  }
  Attributes attributes{{"axis", axis}};
  if (count > 0) {
    attributes.set("num_outputs", count);
  } else {
    attributes.set("split", sizes);
  }
  return b.add_node_with_outputs(layer, "Split", std::move(attributes), {inputs[0]},
                                 count > 0 ? count : static_cast<int64_t>(sizes.size()));
}

void complete_split(Attributes& a) {
  complete_axis(a);
  if (a.find("split") != nullptr) a.set("split", spell_out(a, "split", 1, {}));
}

void complete_slice(Attributes& a) {
  const std::vector<int64_t> starts = spell_out(a, "starts", 1, {});
  a.set("starts", starts);
  a.set("ends", spell_out(a, "ends", 1, {}));
  a.set("steps", spell_out(a, "steps", 1, std::vector<int64_t>(starts.size(), 1)));
  std::vector<int64_t> axes(starts.size());
  std::iota(axes.begin(), axes.end(), int64_t{1});
  a.set("axes", spell_out(a, "axes", 1, std::move(axes)));
}

Outputs build_slice(LayerBuilder& b, const ResolvedLayer& layer, std::span<const TensorId> inputs) {
  return build_on_axes(b, layer, inputs[0], layer.attributes.get_ints("axes", {}),
                       layer.attributes);
}

Outputs build_transpose(LayerBuilder& b, const ResolvedLayer& layer,
                        std::span<const TensorId> inputs) {
  const std::vector<int64_t> perm = layer.attributes.get_ints("perm", {});
  if (perm.empty() || perm[0] != 0) {
    return LayerBuilder::shape_error(layer, "perm: " + Shape(perm).to_string() +
                                                " moves the batch, expected a list that begins "
                                                "with 0: [0, 2, 1]");
  }
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "Transpose", {{"perm", perm}}, {inputs[0]}));
  return {{y}};
}

Outputs add_reshape(LayerBuilder& b, const ResolvedLayer& layer, TensorId x,
                    std::vector<int64_t> dims) {
  ASSIGN_OR_RETURN(const TensorId y,
                   b.add_node(layer, layer.name, "Reshape", {{"shape", std::move(dims)}}, {x}));
  return {{y}};
}

// Squeeze and Unsqueeze become a Reshape whose shape follows from the axes.
Outputs build_squeeze(LayerBuilder& b, const ResolvedLayer& layer,
                      std::span<const TensorId> inputs) {
  const Shape& x = b.shape(inputs[0]);
  std::vector<int64_t> axes = layer.attributes.get_ints("axes", {});
  if (axes.empty()) {
    for (int64_t i = 1; i < x.rank(); ++i) {
      if (x[i] == 1) axes.push_back(i);
    }
  }
  if (Status s = b.need_sample_axes(layer, "axes", axes, inputs[0]); !s.ok()) {
    return std::move(s).error();
  }
  std::vector<bool> gone(x.dims().size());
  for (const int64_t axis : axes) {
    const int64_t i = axis < 0 ? axis + x.rank() : axis;
    if (x[i] != 1) {
      return LayerBuilder::shape_error(layer, "axes: " + std::to_string(axis) + " of " +
                                                  x.to_string() + " has size " +
                                                  std::to_string(x[i]) + ", expected 1");
    }
    gone[static_cast<size_t>(i)] = true;
  }
  std::vector<int64_t> dims;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (!gone[static_cast<size_t>(i)]) dims.push_back(x[i]);
  }
  return add_reshape(b, layer, inputs[0], std::move(dims));
}

// The axes are those of the result, as in ONNX.
Outputs build_unsqueeze(LayerBuilder& b, const ResolvedLayer& layer,
                        std::span<const TensorId> inputs) {
  const Shape& x = b.shape(inputs[0]);
  const std::vector<int64_t> axes = layer.attributes.get_ints("axes", {});
  const int64_t rank = x.rank() + static_cast<int64_t>(axes.size());
  std::vector<bool> fresh(static_cast<size_t>(rank));
  for (const int64_t axis : axes) {
    const int64_t i = axis < 0 ? axis + rank : axis;
    if (i < 1 || i >= rank || fresh[static_cast<size_t>(i)]) {
      return LayerBuilder::shape_error(
          layer, "axes: " + Shape(axes).to_string() + " for " + x.to_string() +
                     ", expected different axes in 1.." + std::to_string(rank - 1) +
                     ", the positions of the sizes of 1 in the result");
    }
    fresh[static_cast<size_t>(i)] = true;
  }
  std::vector<int64_t> dims;
  int64_t next = 0;
  for (int64_t i = 0; i < rank; ++i) dims.push_back(fresh[static_cast<size_t>(i)] ? 1 : x[next++]);
  return add_reshape(b, layer, inputs[0], std::move(dims));
}

// `shape` is that of a sample; the batch size stays the same.
Outputs build_expand(LayerBuilder& b, const ResolvedLayer& layer,
                     std::span<const TensorId> inputs) {
  std::vector<int64_t> dims = layer.attributes.get_ints("shape", {});
  dims.insert(dims.begin(), 1);
  if (static_cast<int64_t>(dims.size()) < b.shape(inputs[0]).rank()) {
    return LayerBuilder::shape_error(
        layer, "shape: has fewer axes than a sample of " + b.shape(inputs[0]).to_string());
  }
  if (static_cast<int64_t>(dims.size()) > b.shape(inputs[0]).rank() && b.has_batch(inputs[0])) {
    return LayerBuilder::shape_error(layer, "shape: has more axes than a sample of " +
                                                b.shape(inputs[0]).to_string() +
                                                "; unsqueeze it first");
  }
  ASSIGN_OR_RETURN(const TensorId y, b.add_node(layer, layer.name, "Expand",
                                                {{"shape", std::move(dims)}}, {inputs[0]}));
  return {{y}};
}

constexpr double kPositionMax = 1e12;  // larger than any size, for "to the end"

AttributeRule axis_rule() { return integer_rule("axis", false, -8, 7); }
AttributeRule axes_rule(bool required) { return dims_rule("axes", required, -8, 7); }

void complete_perm(Attributes& a) { a.set("perm", spell_out(a, "perm", 1, {})); }

}  // namespace

std::vector<LayerKind> shape_layers() {
  AttributeRule split = dims_rule("split", false, 1, kUnitsMax);
  split.count_max = kPartsMax;
  AttributeRule pads = dims_rule("pads", true, 0, 65536);
  pads.count_max = 14;  // two for each of a sample's seven axes
  return {
      {.op = "Flatten",
       .field = "flatten",
       .attributes = {integer_rule("axis", false, 1, 1)},
       .complete = complete_flatten},
      {.op = "Reshape",
       .field = "reshape",
       .attributes = {dims_rule("shape", true, -1, kUnitsMax)},
       .complete = complete_reshape,
       .build = build_reshape},
      {.op = "Concat",
       .field = "concat",
       .inputs_max = kPartsMax,
       .attributes = {axis_rule()},
       .complete = complete_axis,
       .build = build_concat},
      {.op = "Split",
       .field = "split",
       .attributes = {axis_rule(), split, integer_rule("num_outputs", false, 1, kPartsMax)},
       .complete = complete_split,
       .build = build_split},
      {.op = "Pad",
       .field = "pad",
       .attributes = {pads, axes_rule(false), choice_rule("mode", {"constant", "reflect", "edge"}),
                      real_rule("value", false, {.min = -kUnitsMax, .max = kUnitsMax})},
       .build = build_pad},
      {.op = "Slice",
       .field = "slice",
       .attributes = {dims_rule("starts", true, -kPositionMax, kPositionMax),
                      dims_rule("ends", true, -kPositionMax, kPositionMax), axes_rule(false),
                      dims_rule("steps", false, 1, kUnitsMax)},
       .complete = complete_slice,
       .build = build_slice},
      {.op = "Transpose",
       .field = "transpose",
       .attributes = {dims_rule("perm", true, 0, 7)},
       .complete = complete_perm,
       .build = build_transpose},
      {.op = "Squeeze",
       .field = "squeeze",
       .attributes = {axes_rule(false)},
       .complete = complete_axes,
       .build = build_squeeze},
      {.op = "Unsqueeze",
       .field = "unsqueeze",
       .attributes = {axes_rule(true)},
       .complete = complete_axes,
       .build = build_unsqueeze},
      {.op = "Expand",
       .field = "expand",
       .attributes = {dims_rule("shape", true, 1, kUnitsMax)},
       .complete = complete_reshape,
       .build = build_expand}};
}

}  // namespace trainyard
