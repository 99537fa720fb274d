// Imports convolutions, pools and resizing of images [N, C, H, W] and rows [N, C, L], which are
// treated as images of one row.
#include <algorithm>
#include <array>
#include <cmath>

#include "src/onnx/import_table.h"

namespace trainyard::onnx {
namespace {

using A = AttributeSpec;
using Ints = std::vector<int64_t>;

struct Image {
  std::string layer;
  int64_t channels = 1;
  Ints sizes;           // H and W
  bool is_row = false;  // [N, C, L]: H is 1
};

Result<Image> image_of(NodeImport& n) {
  ASSIGN_OR_RETURN(View x, n.view(0));
  const int64_t rank = x.rank();
  if (rank != 3 && rank != 4) {
    return n.refuse("shape " + to_string(x.extents()) + ", expected [N, C, H, W] or [N, C, L]");
  }
  Image image;
  image.is_row = rank == 3;
  if (image.is_row) x.dims.insert(x.dims.begin() + 2, std::vector<int>{});
  const bool is_batched = x.dims[0] == std::vector<int>{0};
  for (size_t i = 1; i < 4; ++i) {
    if (!is_batched || x.extent(x.dims[i]).batch) {
      return n.refuse("shape " + to_string(x.extents()) +
                      ", whose batch is not the first dimension");
    }
  }
  ASSIGN_OR_RETURN(const Importer::Canonical c, n.importer().canonical(x, /*keep_ones=*/true));
  image.layer = c.layer;
  const Ints sizes = n.importer().sizes_of(c.layer);
  image.channels = sizes[0];
  image.sizes = {sizes[1], sizes[2]};
  return image;
}

View view_of(NodeImport& n, const std::string& layer, bool is_row) {
  View y;
  y.layer = layer;
  y.push_batch();
  const Ints sizes = n.importer().sizes_of(layer);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!(is_row && i == 1)) y.push_dim(sizes[i]);
  }
  return y;
}

/// Returns an attribute with one number per spatial dimension, as two numbers for H and W. For a
/// row, the number for H is `neutral`.
Result<Ints> pair_of(NodeImport& n, const char* name, const Image& image, int64_t neutral) {
  Ints given = n.get_ints(name, Ints(image.is_row ? 1 : 2, neutral));
  if (image.is_row) given.insert(given.begin(), neutral);
  if (given.size() == 2) return given;
  return n.refuse(std::string(name) + " does not have one entry per dimension");
}

/// The attributes of a sliding window: kernel_shape, strides, dilations, and four pads, with
/// auto_pad resolved.
struct Window {
  Ints kernel, strides, dilations, pads;
};

Result<Window> window_of(NodeImport& n, const Image& image, const Ints& kernel) {
  Window w;
  w.kernel = kernel;
  ASSIGN_OR_RETURN(w.strides, pair_of(n, "strides", image, 1));
  ASSIGN_OR_RETURN(w.dilations, pair_of(n, "dilations", image, 1));
  Ints pads = n.get_ints("pads", Ints(image.is_row ? 2 : 4, 0));
  if (image.is_row && pads.size() == 2) pads = {0, pads[0], 0, pads[1]};
  const std::string auto_pad = n.get_text("auto_pad", "NOTSET");
  if (auto_pad == "VALID") pads.assign(4, 0);
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    pads.assign(4, 0);
    for (size_t i = 0; i < 2; ++i) {
      const int64_t stride = w.strides[i];
      if (stride < 1 || kernel[i] < 1 || kernel[i] > 65536 || w.dilations[i] < 1 ||
          w.dilations[i] > 65536) {
        return n.refuse("the window is not valid");
      }
      const int64_t out = (image.sizes[i] + stride - 1) / stride;
      const int64_t span = (kernel[i] - 1) * w.dilations[i] + 1;
      const int64_t total = std::max<int64_t>((out - 1) * stride + span - image.sizes[i], 0);
      pads[i] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      pads[i + 2] = total - pads[i];
    }
  } else if (auto_pad != "NOTSET" && auto_pad != "VALID") {
    return n.refuse("auto_pad " + auto_pad);
  }
  if (pads.size() != 4) return n.refuse("pads does not have two entries per dimension");
  w.pads = pads;
  return w;
}

Attributes attributes_of(const Window& w) {
  Attributes a{{"kernel_shape", w.kernel}};
  if (w.strides != Ints{1, 1}) a.set("strides", w.strides);
  if (w.pads != Ints{0, 0, 0, 0}) a.set("pads", w.pads);
  if (w.dilations != Ints{1, 1}) a.set("dilations", w.dilations);
  return a;
}

// --- convolutions ---

/// Returns the constant that a node adds to each channel of a convolution's output; null if it does
/// something else.
const Constant* bias_after(const NodeImport& n, const NodeProto& node, const Image& image,
                           int64_t channels) {
  if (node.op != "Add" || node.inputs.size() != 2) return nullptr;
  const size_t other = node.inputs[0] == n.node().outputs[0] ? 1 : 0;
  const Value* value = n.find(node.inputs[other]);
  const auto* c = value != nullptr ? std::get_if<Constant>(value) : nullptr;
  if (c == nullptr || !c->is_float || has_batch(c->dims) || !n.may_copy(*c)) return nullptr;
  const size_t rank = image.is_row ? 3 : 4, at = c->dims.size() + 1 - rank;  // of the channels
  if (c->dims.size() + 1 < rank || c->dims.size() > rank) return nullptr;
  return c->elements() == channels && c->dims[at].count == channels ? c : nullptr;
}

Status import_conv(NodeImport& n) {
  const bool transposes = n.op() == "ConvTranspose";
  ASSIGN_OR_RETURN(const Constant* weight, n.floats(1, "the weight"));
  ASSIGN_OR_RETURN(const Image image, image_of(n));
  Ints dims = counts_of(weight->dims);
  if (image.is_row && dims.size() == 3) dims.insert(dims.begin() + 2, 1);
  if (dims.size() != 4) return n.refuse("the weight is not of shape [K, C, R, S]");
  const Ints kernel = {dims[2], dims[3]};
  ASSIGN_OR_RETURN(const Ints given, pair_of(n, "kernel_shape", image, 1));
  if (n.has("kernel_shape") && given != kernel)
    return n.refuse("kernel_shape differs from the weight's");
  if (transposes && n.has("auto_pad") && n.get_text("auto_pad", "") != "NOTSET") {
    return n.refuse("auto_pad " + n.get_text("auto_pad", "") + " is not supported");
  }
  ASSIGN_OR_RETURN(const Window window, window_of(n, image, kernel));
  const int64_t group = n.get_int("group", 1);
  if (group < 1 || group > 65536 || dims[1] > 65536) return n.refuse("the group is not valid");
  const int64_t out_channels = transposes ? dims[1] * group : dims[0];
  if ((transposes ? dims[0] : dims[1] * group) != image.channels) {
    return n.refuse("the weight's channels do not match " + std::to_string(image.channels));
  }
  Attributes a = attributes_of(window);
  a.set("out_channels", out_channels);
  if (group > 1) a.set("group", group);
  if (transposes && n.has("output_padding")) {
    ASSIGN_OR_RETURN(const Ints extra, pair_of(n, "output_padding", image, 0));
    if (extra != Ints{0, 0}) a.set("output_padding", extra);
  }
  const Constant* bias = nullptr;
  if (n.has_input(2)) {
    ASSIGN_OR_RETURN(bias, n.floats(2, "the bias"));
    if (bias->elements() != out_channels) return n.refuse("the bias has the wrong size");
    if (n.importer().is_no_bias(*bias)) bias = nullptr;
  }
  Importer& importer = n.importer();
  const NodeProto* add = bias == nullptr ? importer.only_reader(n.node().outputs[0]) : nullptr;
  if (add != nullptr) bias = bias_after(n, *add, image, out_channels);
  if (bias == nullptr) {
    a.set("bias", int64_t{0});
    add = nullptr;
  }
  ASSIGN_OR_RETURN(const std::string layer, importer.add_layer(n.op(), std::move(a), {image.layer},
                                                               Importer::name_hint(*weight)));
  importer.set_weight(layer, "weight", numbers_of(*weight));
  importer.remember_weight(weight->initializer, layer);
  if (bias != nullptr) importer.set_weight(layer, "bias", numbers_of(*bias));
  if (add != nullptr) {
    importer.mark_done(*add);
    importer.define(add->outputs[0], view_of(n, layer, image.is_row));
  }
  return n.give(view_of(n, layer, image.is_row));
}

// --- pools ---

// Imports an average pool with ceil_mode and count_include_pad. Cells beyond the padding do not
// count in ONNX, and no window begins there. The layer does not support both attributes together,
// so a Pad layer adds the padding, and the pool treats its result as the image.
Result<std::string> padded_pool(NodeImport& n, const Image& image, const Window& w) {
  Importer& importer = n.importer();
  std::string layer = image.layer;
  if (w.pads != Ints{0, 0, 0, 0}) {
    ASSIGN_OR_RETURN(layer,
                     importer.add_layer("Pad", {{"pads", w.pads}, {"axes", Ints{2, 3}}}, {layer}));
  }
  Window inner = w;
  inner.pads.assign(4, 0);
  Attributes a = attributes_of(inner);
  a.set("strides", w.strides);
  a.set("ceil_mode", int64_t{1});
  ASSIGN_OR_RETURN(layer, importer.add_layer("AveragePool", std::move(a), {layer}));
  Ints axes, starts, ends;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = importer.sizes_of(layer)[i + 1];
    const int64_t last = (size - 1) * w.strides[i];  // start of the last window
    if (size == 1 || last < image.sizes[i] + w.pads[i]) continue;
    axes.push_back(static_cast<int64_t>(i) + 2);
    starts.push_back(0);
    ends.push_back(size - 1);
  }
  if (axes.empty()) return layer;
  return importer.add_layer("Slice", {{"starts", starts}, {"ends", ends}, {"axes", axes}}, {layer});
}

/// Returns true if the one window of a pool begins at the first element and ends behind the last.
bool covers_image(const NodeImport& n, const Image& image, const Window& w) {
  const auto covers = [&](size_t i) {
    const int64_t beyond = w.kernel[i] - image.sizes[i];
    return beyond >= 0 && beyond < w.strides[i];
  };
  return n.get_int("ceil_mode", 0) != 0 && w.pads == Ints{0, 0, 0, 0} &&
         w.dilations == Ints{1, 1} && covers(0) && covers(1);
}

Status import_pool(NodeImport& n) {
  ASSIGN_OR_RETURN(const Image image, image_of(n));
  if (!n.has("kernel_shape")) return n.refuse("has no kernel_shape");
  ASSIGN_OR_RETURN(const Ints kernel, pair_of(n, "kernel_shape", image, 1));
  ASSIGN_OR_RETURN(const Window window, window_of(n, image, kernel));
  if (n.wants_output(1)) return n.refuse("its output Indices is used");
  if (n.op() == "AveragePool" && covers_image(n, image, window)) {
    ASSIGN_OR_RETURN(const std::string layer,
                     n.importer().add_layer("GlobalAveragePool", {}, {image.layer}));
    return n.give(view_of(n, layer, image.is_row));
  }
  if (n.get_int("ceil_mode", 0) != 0 && n.get_int("count_include_pad", 0) != 0) {
    ASSIGN_OR_RETURN(const std::string layer, padded_pool(n, image, window));
    return n.give(view_of(n, layer, image.is_row));
  }
  Attributes a = attributes_of(window);
  a.set("strides", window.strides);  // always given, since the layer's default is the window
  for (const char* name : {"ceil_mode", "count_include_pad"}) {
    if (n.get_int(name, 0) != 0) a.set(name, int64_t{1});
  }
  ASSIGN_OR_RETURN(const std::string layer,
                   n.importer().add_layer(n.op(), std::move(a), {image.layer}));
  return n.give(view_of(n, layer, image.is_row));
}

Status import_global_pool(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  if (n.dims(0).size() < 3) return n.refuse("of " + to_string(n.dims(0)));
  if (n.op() == "GlobalAveragePool" && n.dims(0).size() <= 4) {
    ASSIGN_OR_RETURN(const Image image, image_of(n));
    ASSIGN_OR_RETURN(const std::string layer,
                     n.importer().add_layer("GlobalAveragePool", {}, {image.layer}));
    return n.give(view_of(n, layer, image.is_row));
  }
  ASSIGN_OR_RETURN(const View x, n.view(0));
  ASSIGN_OR_RETURN(Importer::Canonical c, n.importer().canonical(x));
  Ints axes;
  for (size_t i = 2; i < x.dims.size(); ++i) {
    if (x.extent(x.dims[i]).batch) return n.refuse("mixes samples");
    if (c.axis[i] > 0) axes.push_back(c.axis[i]);
  }
  if (axes.empty()) return n.give(x);
  const char* op = n.op() == "GlobalMaxPool" ? "ReduceMax" : "ReduceMean";
  ASSIGN_OR_RETURN(const std::string layer,
                   n.importer().add_layer(op, {{"axes", axes}}, {c.layer}));
  View y;
  y.layer = layer;
  y.push_batch();
  y.push_dim(x.extent(x.dims[1]).count);
  y.dims.resize(x.dims.size());
  return n.give(y);
}

// --- sizes ---

/// Returns the attribute that determines H and W of a Resize: sizes, or scales.
Result<Attributes> resized(NodeImport& n, const Image& image, const std::optional<Ints>& sizes,
                           const std::vector<double>& scales) {
  if (sizes) return Attributes{{"sizes", *sizes}};
  const bool is_whole = std::ranges::all_of(std::array<size_t, 2>{0, 1}, [&](size_t i) {
    const double size = static_cast<double>(image.sizes[i]) * scales[i];
    return size == std::floor(size);
  });
  // With align_corners, positions depend on the result's size, and ONNX uses the size before
  // rounding.
  const bool rounds =
      !is_whole && n.get_text("coordinate_transformation_mode", "") == "align_corners";
  if (scales[0] == scales[1] && !rounds) return Attributes{{"scales", scales[0]}};
  Ints by_scale;
  for (size_t i = 0; i < 2; ++i) {
    const double size = static_cast<double>(image.sizes[i]) * scales[i];
    if (!(size >= 1 && size <= 65536) || size != std::floor(size)) {
      return n.refuse("the scales differ and do not give whole sizes");
    }
    by_scale.push_back(static_cast<int64_t>(size));
  }
  return Attributes{{"sizes", by_scale}};
}

Status import_resize(NodeImport& n) {
  const bool is_upsample = n.op() == "Upsample" || n.opset() < 11;
  ASSIGN_OR_RETURN(const View x, n.view(0));
  const std::vector<Extent> dims = x.extents();
  ASSIGN_OR_RETURN(const Image image, image_of(n));
  // The arguments moved between inputs: opset 10 has only scales, later ones have roi, scales,
  // sizes.
  const size_t scales_at = is_upsample ? 1 : 2;
  std::vector<double> scales;
  std::optional<std::vector<Extent>> sizes;
  if (n.has("scales")) {
    for (const float s : n.node().find("scales")->floats) scales.push_back(static_cast<double>(s));
  } else if (const Constant* c = n.find_constant(scales_at); c != nullptr && c->stored() > 0) {
    ASSIGN_OR_RETURN(c, n.floats(scales_at, "scales"));
    for (const float s : *c->floats) scales.push_back(static_cast<double>(s));
  } else if (n.has_input(3)) {
    ASSIGN_OR_RETURN(sizes, n.extents(3, "sizes"));
  } else {
    return n.refuse("scales or sizes are not constants");
  }
  std::vector<int64_t> axes(dims.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  ASSIGN_OR_RETURN(axes, n.axes(n.get_ints("axes", axes), std::ssize(dims)));
  if (axes.size() != (sizes ? sizes->size() : scales.size()))
    return n.refuse("axes has the wrong number of entries");
  std::vector<double> both = {1, 1};
  Ints both_sizes = image.sizes;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i]);
    const size_t first = dims.size() - (image.is_row ? 1 : 2);
    if (axis < first) {
      const bool stays =
          sizes ? (*sizes)[i] == dims[axis] || (axis == 0 && n.importer().fixed_batch() &&
                                                (*sizes)[i].count == *n.importer().fixed_batch())
                : scales[i] == 1;
      if (!stays) return n.refuse("resizing the batch or channels is not supported");
      continue;
    }
    const size_t k = axis - first + (image.is_row ? 1 : 0);
    if (sizes) both_sizes[k] = (*sizes)[i].count;
    if (!sizes) both[k] = scales[i];
  }
  Attributes a;
  ASSIGN_OR_RETURN(a, resized(n, image, sizes ? std::optional(both_sizes) : std::nullopt, both));
  const std::string mode = n.get_text("mode", "nearest");
  if (mode != "nearest" && mode != "linear") return n.refuse("mode " + mode + " is not supported");
  a.set("mode", mode);
  std::string where =
      is_upsample ? "asymmetric" : n.get_text("coordinate_transformation_mode", "half_pixel");
  if (where == "pytorch_half_pixel")
    where = "half_pixel";  // the two modes differ only for images of one row or column
  a.set("coordinate_transformation_mode", where);
  if (mode == "nearest") {
    a.set("nearest_mode",
          is_upsample ? std::string("floor") : n.get_text("nearest_mode", "round_prefer_floor"));
  }
  if (n.get_int("antialias", 0) != 0 || n.get_int("exclude_outside", 0) != 0 ||
      n.get_text("keep_aspect_ratio_policy", "stretch") != "stretch") {
    return n.refuse("antialias, exclude_outside and keep_aspect_ratio_policy are not supported");
  }
  ASSIGN_OR_RETURN(const std::string layer, n.importer().add_layer("Resize", a, {image.layer}));
  if (n.get_text("coordinate_transformation_mode", "") == "pytorch_half_pixel") {
    for (const int64_t size : n.importer().sizes_of(layer)) {
      if (size == 1) return n.refuse("pytorch_half_pixel is not supported for one row or column");
    }
  }
  return n.give(view_of(n, layer, image.is_row));
}

// --- between channels and pixels: changes only the view ---

Status import_depth_to_space(NodeImport& n) {
  const bool to_depth = n.op() == "SpaceToDepth";
  ASSIGN_OR_RETURN(const View x, n.view(0));
  const std::vector<Extent> d = x.extents();
  const int64_t block = n.get_int("blocksize", 0);
  const bool fits = d.size() == 4 && block >= 1 && block <= 65536 && !d[1].batch && !d[2].batch &&
                    !d[3].batch &&
                    (to_depth ? d[2].count % block == 0 && d[3].count % block == 0
                              : d[1].count % (block * block) == 0);
  if (!fits)
    return n.refuse("blocksize " + std::to_string(block) + " does not fit " + to_string(d));
  const Extent b{block, false};
  const auto part = [](const Extent& e, int64_t by) { return Extent{e.count / by, false}; };
  std::vector<Extent> cut, joined;
  Ints perm;
  if (to_depth) {
    cut = {d[0], d[1], part(d[2], block), b, part(d[3], block), b};
    perm = {0, 3, 5, 1, 2, 4};
    joined = {d[0], {d[1].count * block * block, false}, cut[2], cut[4]};
  } else {
    const Extent rest = part(d[1], block * block);
    const bool is_dcr = n.get_text("mode", "DCR") == "DCR";
    cut = is_dcr ? std::vector<Extent>{d[0], b, b, rest, d[2], d[3]}
                 : std::vector<Extent>{d[0], rest, b, b, d[2], d[3]};
    perm = is_dcr ? Ints{0, 3, 4, 1, 5, 2} : Ints{0, 1, 4, 2, 5, 3};
    joined = {d[0], rest, {d[2].count * block, false}, {d[3].count * block, false}};
  }
  ASSIGN_OR_RETURN(View y, n.importer().reshape(x, cut));
  const View before = y;
  for (size_t i = 0; i < perm.size(); ++i) {
    y.dims[i] = before.dims[static_cast<size_t>(perm[i])];
  }
  return n.give(n.importer().reshape(std::move(y), joined));
}

}  // namespace

std::vector<ImportRow> image_imports() {
  const std::vector<AttributeSpec> window = {{"auto_pad", A::kText},
                                             {"kernel_shape", A::kInts},
                                             {"strides", A::kInts},
                                             {"pads", A::kInts},
                                             {"dilations", A::kInts}};
  const auto with = [&](std::vector<AttributeSpec> more) {
    more.insert(more.end(), window.begin(), window.end());
    return more;
  };
  return {{.op = "Conv",
           .becomes = "conv",
           .limits = "a weight or bias that is not a constant; volumes",
           .attributes = with({{"group"}}),
           .import = import_conv},
          {.op = "ConvTranspose",
           .becomes = "conv_transpose",
           .limits = "as Conv; auto_pad, output_shape",
           .attributes = with({{"group"}, {"output_padding", A::kInts}}),
           .import = import_conv},
          {.op = "MaxPool",
           .becomes = "max_pool",
           .limits = "Indices; pads of a whole window; volumes",
           .attributes = with({{"ceil_mode"}, {"storage_order"}}),
           .import = import_pool},
          {.op = "AveragePool",
           .becomes = "average_pool; pad, average_pool, slice",
           .limits = "pads of a whole window; volumes",
           .attributes = with({{"ceil_mode"}, {"count_include_pad"}}),
           .import = import_pool},
          {.op = "GlobalAveragePool",
           .becomes = "global_average_pool, reduce_mean",
           .import = import_global_pool},
          {.op = "GlobalMaxPool", .becomes = "reduce_max", .import = import_global_pool},
          {.op = "Resize",
           .since = 10,
           .becomes = "resize",
           .limits = "cubic; antialias; regions; resized channels",
           .attributes = {{"mode", A::kText},
                          {"coordinate_transformation_mode", A::kText},
                          {"nearest_mode", A::kText},
                          {"axes", A::kInts},
                          {"antialias"},
                          {"exclude_outside"},
                          {"cubic_coeff_a", A::kFloat},
                          {"extrapolation_value", A::kFloat},
                          {"keep_aspect_ratio_policy", A::kText}},
           .import = import_resize},
          {.op = "Upsample",
           .becomes = "resize",
           .limits = "cubic; resized channels",
           .attributes = {{"mode", A::kText}, {"scales", A::kFloats}},
           .import = import_resize},
          {.op = "DepthToSpace",
           .becomes = "reshape, transpose",
           .attributes = {{"blocksize"}, {"mode", A::kText}},
           .import = import_depth_to_space},
          {.op = "SpaceToDepth",
           .becomes = "reshape, transpose",
           .attributes = {{"blocksize"}},
           .import = import_depth_to_space}};
}

}  // namespace trainyard::onnx
