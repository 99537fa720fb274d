// Imports operations that take the parts of a dimension apart.
#include <algorithm>

#include "src/onnx/constant_elements.h"

namespace trainyard::onnx {
namespace {

using A = AttributeSpec;
using Ints = std::vector<int64_t>;

constexpr int64_t kSequencePartsMax = 1 << 16;

/// Returns the parts of a value along an axis, of the sizes `parts`, which add up to the whole.
Result<std::vector<Value>> split(NodeImport& n, const Value& value, int64_t axis,
                                 const Ints& parts) {
  const auto at = static_cast<size_t>(axis);
  std::vector<Value> values;
  if (const auto* c = std::get_if<Constant>(&value)) {
    const Ints steps = strides_of(stored_sizes(c->dims));
    int64_t offset = 0;
    for (const int64_t part : parts) {
      std::vector<Extent> dims = c->dims;
      dims[at].count = part;
      values.emplace_back(strided(*c, dims, offset * steps[at], steps));
      offset += part;
    }
    return values;
  }
  const View& x = std::get<View>(value);
  if (parts.size() == 1) return std::vector<Value>{x};
  ASSIGN_OR_RETURN(const Importer::Canonical c, n.importer().canonical(x, /*keep_ones=*/true));
  ASSIGN_OR_RETURN(
      const std::string layer,
      n.importer().add_layer("Split", {{"axis", c.axis[at]}, {"split", parts}}, {c.layer}));
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part = layer + "." + std::to_string(i);
    values.emplace_back(resized(c, part, n.importer().sizes_of(part)));
  }
  return values;
}

/// Splits input 0, if `parts` fit it.
Result<std::vector<Value>> split_input(NodeImport& n, int64_t axis, const Ints& parts) {
  const Extent whole = n.dims(0)[static_cast<size_t>(axis)];
  if (whole.batch) return n.refuse("cuts the batch");
  if (std::ssize(parts) > kSequencePartsMax) {
    return n.refuse("has more than " + std::to_string(kSequencePartsMax) + " parts");
  }
  int64_t sum = 0;
  for (const int64_t part : parts) {
    if (part < 1 || part > whole.count) return n.refuse("a part has size " + std::to_string(part));
    sum += part;
  }
  if (sum != whole.count) {
    return n.refuse("parts " + Shape(parts).to_string() + " do not add up to " +
                    std::to_string(whole.count));
  }
  return split(n, n.input(0), axis, parts);
}

/// Returns the sizes of parts of `size` elements, of which the last may have fewer. Stops after one
/// part more than are supported.
Ints equal_parts(int64_t whole, int64_t size) {
  Ints parts;
  for (int64_t begin = 0; begin < whole && std::ssize(parts) <= kSequencePartsMax; begin += size) {
    parts.push_back(std::min(size, whole - begin));
  }
  return parts;
}

Status import_split(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  ASSIGN_OR_RETURN(auto parts, n.ints_of("split", 1));
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 0), std::ssize(n.dims(0))));
  const auto count = std::ssize(n.node().outputs);
  if (!parts) {
    const int64_t whole = n.dims(0)[static_cast<size_t>(axis)].count;
    parts = equal_parts(whole, std::max<int64_t>((whole + count - 1) / count, 1));
  }
  if (std::ssize(*parts) != count) {
    return n.refuse("has " + std::to_string(count) + " outputs for " +
                    std::to_string(parts->size()) + " parts");
  }
  ASSIGN_OR_RETURN(std::vector<Value> values, split_input(n, axis, *parts));
  for (size_t i = 0; i < values.size(); ++i) (void)n.give(std::move(values[i]), i);
  return {};
}

/// Returns the sizes of the parts of a SplitToSequence.
Result<Ints> sequence_parts(NodeImport& n, const Extent& whole) {
  if (!n.has_input(1)) return equal_parts(whole.count, 1);
  ASSIGN_OR_RETURN(const Ints given, n.ints(1, "split"));
  const bool is_size = n.dims(1).empty();
  if (!is_size) return given;
  if (given[0] < 1) return n.refuse("a part has size " + std::to_string(given[0]));
  return equal_parts(whole.count, given[0]);
}

Value without_dim(Value value, int64_t axis) {
  if (auto* c = std::get_if<Constant>(&value)) {
    c->dims.erase(c->dims.begin() + axis);
  } else {
    auto& dims = std::get<View>(value).dims;
    dims.erase(dims.begin() + axis);
  }
  return value;
}

// PyTorch writes chunk, split and unbind as a sequence of parts, and a SequenceAt for each that is
// used. Each of these becomes its part.
Status import_split_to_sequence(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  Importer& importer = n.importer();
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 0), std::ssize(n.dims(0))));
  ASSIGN_OR_RETURN(const Ints parts, sequence_parts(n, n.dims(0)[static_cast<size_t>(axis)]));
  ASSIGN_OR_RETURN(std::vector<Value> values, split_input(n, axis, parts));
  if (!n.has_input(1) && n.get_int("keepdims", 1) == 0) {
    for (Value& value : values) value = without_dim(std::move(value), axis);
  }
  for (const NodeProto* reader : importer.readers_of(n.node().outputs[0])) {
    const Value* at = reader->op == "SequenceAt" && reader->inputs.size() == 2
                          ? importer.find(reader->inputs[1])
                          : nullptr;
    const auto* c = at != nullptr ? std::get_if<Constant>(at) : nullptr;
    if (c == nullptr || c->is_float || c->stored() != 1 || has_batch(*c->ints)) {
      return n.refuse("its parts are used other than by SequenceAt with a constant position");
    }
    const int64_t given = c->ints->front().count;
    const int64_t position = given < 0 ? given + std::ssize(values) : given;
    if (position < 0 || position >= std::ssize(values)) {
      return n.refuse("position " + std::to_string(given) + " of " + std::to_string(values.size()) +
                      " parts");
    }
    importer.mark_done(*reader);
    importer.define(reader->outputs[0], values[static_cast<size_t>(position)]);
  }
  return {};
}

Status import_sequence_at(NodeImport& n) {
  return n.refuse("is supported only for the parts of a SplitToSequence");
}

}  // namespace

std::vector<ImportRow> split_imports() {
  return {{.op = "Split",
           .becomes = "split",
           .limits = "of the batch",
           .attributes = {{"axis"}, {"split", A::kInts}, {"num_outputs"}},
           .import = import_split},
          {.op = "SplitToSequence",
           .since = 11,
           .becomes = "split",
           .limits = "of the batch; uses other than by SequenceAt",
           .attributes = {{"axis"}, {"keepdims"}},
           .import = import_split_to_sequence},
          {.op = "SequenceAt",
           .since = 11,
           .becomes = "its part",
           .limits = "of other sequences than those of SplitToSequence",
           .import = import_sequence_at}};
}

}  // namespace trainyard::onnx
