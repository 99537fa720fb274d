// Imports channel normalizations. PyTorch's exporter writes group normalization as an instance
// normalization of reshaped groups with scale 1 and bias 0, followed by a product and a sum. This
// is imported as one layer.
#include <algorithm>

#include "src/onnx/import_table.h"

namespace trainyard::onnx {
namespace {

using A = AttributeSpec;

/// Checks that `count` inputs from `first` on have one number for each channel.
Status channel_vectors(NodeImport& n, size_t first, size_t count, int64_t channels) {
  for (size_t i = first; i < first + count; ++i) {
    ASSIGN_OR_RETURN(const Constant* c, n.floats(i, "scale, bias, mean or variance"));
    if (c->elements() != channels) return n.refuse("a vector does not have one value per channel");
  }
  return {};
}

/// Arranges the input with the batch and the channels first. With `as_image`, 3 or more dimensions
/// become an image, in which all dimensions after the third are joined.
Result<Importer::Canonical> channels_first(NodeImport& n, bool as_image) {
  ASSIGN_OR_RETURN(View x, n.view(0));
  if (x.rank() < 2 || x.dims[0] != std::vector<int>{0}) {
    return n.refuse("shape " + to_string(x.extents()) +
                    ", expected the batch and channels in front");
  }
  if (as_image && x.rank() == 3) x.dims.insert(x.dims.begin() + 2, std::vector<int>{});
  while (as_image && x.rank() > 4) {
    std::vector<int> last = std::move(x.dims.back());
    x.dims.pop_back();
    x.dims.back().insert(x.dims.back().end(), last.begin(), last.end());
  }
  return n.importer().canonical(x, /*keep_ones=*/true);
}

/// Defines the output of a layer that keeps the shape, with the dimensions of the node's input.
Status set_output_like_input(NodeImport& n, const Importer::Canonical& c,
                             const std::string& layer) {
  View y = c.view;
  y.layer = layer;
  return n.give(n.importer().reshape(std::move(y), n.dims(0)));
}

Status import_batch_norm(NodeImport& n) {
  if (n.get_int("training_mode", 0) != 0)
    return n.refuse("training_mode is set, expected a file for inference");
  for (size_t i = 1; i < 5; ++i) {
    if (n.wants_output(i)) return n.refuse("its output statistics are used");
  }
  if (n.get_int("spatial", 1) != 1) return n.refuse("spatial: 0 is not supported");
  ASSIGN_OR_RETURN(const Importer::Canonical c, channels_first(n, true));
  const int64_t channels = n.importer().sizes_of(c.layer)[0];
  if (Status s = channel_vectors(n, 1, 4, channels); !s.ok()) return s;
  Attributes a;
  const double epsilon = n.get_float("epsilon", 1e-5), momentum = n.get_float("momentum", 0.9);
  a.set("epsilon", epsilon);
  a.set("momentum", momentum);
  Importer& importer = n.importer();
  ASSIGN_OR_RETURN(const std::string layer,
                   importer.add_layer("BatchNormalization", std::move(a), {c.layer},
                                      Importer::name_hint(*n.find_constant(1))));
  importer.remember_weight(n.find_constant(1)->initializer, layer);
  for (const auto& [i, name] : {std::pair<size_t, const char*>(1, "weight"),
                                {2, "bias"},
                                {3, "running_mean"},
                                {4, "running_var"}}) {
    importer.set_weight(layer, name, numbers_of(*n.find_constant(i)));
  }
  return set_output_like_input(n, c, layer);
}

// --- groups ---

bool is_fixed(const Constant& c, float value) {
  return !c.trainable && c.uniform() && c.floats->front() == value;
}

/// Returns the node that reads the Reshape which restores the shape after a group normalization;
/// null if there is none or several.
const NodeProto* reader_after_reshape(const Importer& importer, const NodeProto& norm) {
  const NodeProto* reshape = importer.only_reader(norm.outputs[0]);
  if (reshape == nullptr || reshape->op != "Reshape" || reshape->inputs[0] != norm.outputs[0]) {
    return nullptr;
  }
  return importer.only_reader(reshape->outputs[0]);
}

/// Returns the initializer that a value is, or is derived from by nodes that move elements.
std::string source_of(const Importer& importer, std::string value) {
  for (const NodeProto* node = importer.producer_of(value); node != nullptr;) {
    if (node->inputs.empty()) return "";
    value = node->inputs[0];
    node = importer.producer_of(value);
  }
  return value;
}

// Recognizes a group normalization: [N, C, ...] reshaped to [N, G, rest], normalized with scale 1
// and bias 0, and reshaped back. Scale and shift per channel are absorbed when the following nodes
// are imported (absorb_affine).
Result<bool> import_reshaped_groups(NodeImport& n) {
  ASSIGN_OR_RETURN(const Constant* scale, n.floats(1, "scale"));
  ASSIGN_OR_RETURN(const Constant* shift, n.floats(2, "bias"));
  const NodeProto* next = reader_after_reshape(n.importer(), n.node());
  if (next == nullptr || next->op != "Mul" || !is_fixed(*scale, 1) || !is_fixed(*shift, 0)) {
    return false;
  }
  ASSIGN_OR_RETURN(View x, n.view(0));
  if (x.rank() != 3 || x.dims[0] != std::vector<int>{0}) return false;
  std::vector<int> order = x.dims[1];
  order.insert(order.end(), x.dims[2].begin(), x.dims[2].end());
  if (!std::ranges::is_sorted(order) || order.size() + 1 != x.atoms.size()) return false;
  const int64_t groups = x.extent(x.dims[1]).count;
  const int64_t channels = n.importer().sizes_of(x.layer)[0];
  if (channels % groups != 0) return false;
  Constant weight;  // only its name is used
  for (const std::string& input : next->inputs) {
    const std::string source = source_of(n.importer(), input);
    const Value* value = n.importer().find(source);
    if (value != nullptr && std::holds_alternative<Constant>(*value)) weight.initializer = source;
  }
  ASSIGN_OR_RETURN(
      const std::string layer,
      n.importer().add_layer("GroupNormalization",
                             {{"epsilon", n.get_float("epsilon", 1e-5)}, {"num_groups", groups}},
                             {x.layer}, Importer::name_hint(weight)));
  const auto all = [&](const Constant& c) {
    return numbers_of(c, channels, [](int64_t) { return 0; });
  };
  n.importer().set_weight(layer, "weight", all(*scale));
  n.importer().set_weight(layer, "bias", all(*shift));
  n.importer().expect_affine(layer, *next);
  x.layer = layer;
  (void)n.give(std::move(x));
  return true;
}

Status import_group_norm(NodeImport& n) {
  const bool is_instance = n.op() == "InstanceNormalization";
  if (is_instance) {
    ASSIGN_OR_RETURN(const bool is_done, import_reshaped_groups(n));
    if (is_done) return {};
  }
  ASSIGN_OR_RETURN(const Importer::Canonical c, channels_first(n, false));
  const int64_t channels = n.importer().sizes_of(c.layer)[0];
  const int64_t groups = is_instance ? channels : n.get_int("num_groups", 0);
  if (groups < 1 || channels % groups != 0) return n.refuse("num_groups " + std::to_string(groups));
  // In opset 18 scale and bias have one number per group.
  const int64_t count = !is_instance && n.opset() < 21 ? groups : channels;
  if (Status s = channel_vectors(n, 1, 2, count); !s.ok()) return s;
  Attributes a{{"epsilon", n.get_float("epsilon", 1e-5)}};
  if (!is_instance) a.set("num_groups", groups);
  Importer& importer = n.importer();
  ASSIGN_OR_RETURN(const std::string layer,
                   importer.add_layer(n.op(), std::move(a), {c.layer},
                                      Importer::name_hint(*n.find_constant(1))));
  for (const auto& [i, name] : {std::pair<size_t, const char*>(1, "weight"), {2, "bias"}}) {
    importer.set_weight(layer, name, numbers_of(*n.find_constant(i), channels, [&](int64_t k) {
                          return k / (channels / count);
                        }));
  }
  return set_output_like_input(n, c, layer);
}

}  // namespace

// Makes the product and the sum that follow import_reshaped_groups() the scale and the bias of its
// layer. Both must have one number per channel.
Result<bool> absorb_affine(NodeImport& n) {
  Importer& importer = n.importer();
  const std::string* layer = importer.expected_affine(n.node());
  if (layer == nullptr || n.input_count() != 2 || !n.has_input(0) || !n.has_input(1)) return false;
  const bool is_first = n.find_constant(0) != nullptr;
  const Constant* c = n.find_constant(is_first ? 0 : 1);
  const auto* x = std::get_if<View>(&n.input(is_first ? 1 : 0));
  if (c == nullptr || x == nullptr || x->layer != *layer || !c->is_float ||
      importer.is_shared(*c)) {
    return false;
  }
  const int64_t channels = importer.sizes_of(*layer)[0];
  // Index of the channels among the constant's dimensions.
  const int64_t before = std::ssize(c->dims) - x->rank() + 1;
  if (x->rank() < 2 || x->dims[0] != std::vector<int>{0} || before < 0 ||
      before >= std::ssize(c->dims) || x->extent(x->dims[1]) != Extent{channels, false}) {
    return false;
  }
  std::vector<Extent> expected(c->dims.size());
  expected[static_cast<size_t>(before)] = {channels, false};
  if (c->dims != expected) return false;
  const bool is_scale = n.op() == "Mul";
  importer.set_weight(*layer, is_scale ? "weight" : "bias", numbers_of(*c));
  const NodeProto* next = importer.only_reader(n.node().outputs[0]);
  if (is_scale && next != nullptr && next->op == "Add") importer.expect_affine(*layer, *next);
  (void)n.give(View(*x));
  return true;
}

std::vector<ImportRow> norm_imports() {
  return {{.op = "BatchNormalization",
           .becomes = "batch_normalization",
           .limits = "training_mode",
           .attributes =
               {{"epsilon", A::kFloat}, {"momentum", A::kFloat}, {"training_mode"}, {"spatial"}},
           .import = import_batch_norm},
          {.op = "InstanceNormalization",
           .becomes = "instance_normalization; group_normalization, with the nodes around it",
           .attributes = {{"epsilon", A::kFloat}},
           .import = import_group_norm},
          {.op = "GroupNormalization",
           .since = 18,
           .becomes = "group_normalization",
           .attributes = {{"epsilon", A::kFloat}, {"num_groups"}, {"stash_type"}},
           .import = import_group_norm}};
}
}  // namespace trainyard::onnx
