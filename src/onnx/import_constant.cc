// Imports operations whose result is known before a model runs: constants and sizes.
#include <cmath>

#include "src/onnx/constant_elements.h"

namespace trainyard::onnx {
namespace {

using A = AttributeSpec;

Result<bool> fold_constant(NodeImport& n) {
  for (const AttributeProto& a : n.node().attributes) {
    Constant value;
    if (a.name == "value") {
      ASSIGN_OR_RETURN(value, n.importer().decode(*a.tensor));
    } else if (a.name == "value_float") {
      value = float_constant({}, {static_cast<float>(a.f)});
    } else if (a.name == "value_floats") {
      value = float_constant({std::ssize(a.floats)}, a.floats);
    } else if (a.name == "value_int") {
      value = int_constant({}, {{a.i, false}});
    } else {
      value = int_constant({std::ssize(a.ints)}, extents_of(a.ints));
    }
    (void)n.give(std::move(value));
    return true;
  }
  return n.refuse("has no value");
}

Result<bool> fold_constant_of_shape(NodeImport& n) {
  ASSIGN_OR_RETURN(const std::vector<Extent> dims, n.extents(0, "the shape"));
  Constant value = float_constant({}, {0});
  if (const AttributeProto* a = n.node().find("value"); a != nullptr) {
    ASSIGN_OR_RETURN(value, n.importer().decode(*a->tensor));
  }
  if (value.stored() != 1) return n.refuse("value has several elements");
  if (!may_hold(product(stored_sizes(dims)))) return too_large(n);
  value.dims = dims;
  value.is_splat = true;
  (void)n.give(std::move(value));
  return true;
}

Status import_shape(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  const std::vector<Extent> all = n.dims(0);
  const auto rank = std::ssize(all);
  const auto bounded = [&](int64_t i) {
    return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank);
  };
  const int64_t start = bounded(n.get_int("start", 0));
  const int64_t end = std::max(start, bounded(n.get_int("end", rank)));
  std::vector<Extent> shape(all.begin() + start, all.begin() + end);
  const int64_t count = std::ssize(shape);
  return n.give(int_constant({count}, std::move(shape)));
}

Result<bool> fold_shape(NodeImport& n) {
  Status s = import_shape(n);
  if (!s.ok()) return std::move(s).error();
  return true;
}

Status import_size(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  Extent size;
  for (const Extent& e : n.dims(0)) {
    if (e.batch && size.batch) return n.refuse("a size includes the batch twice");
    size = {size.count * e.count, size.batch || e.batch};
  }
  return n.give(int_constant({}, {size}));
}

Result<bool> fold_size(NodeImport& n) {
  Status s = import_size(n);
  if (!s.ok()) return std::move(s).error();
  return true;
}

/// Returns the limit N if the range is 0, 1, ... N - 1, the numbers of the samples; else nothing.
std::optional<Extent> samples_of_range(const NodeImport& n) {
  const auto is = [&](size_t i, int64_t number) {
    const Constant* c = n.find_constant(i);
    return c != nullptr && !c->is_float && c->stored() == 1 &&
           c->ints->front() == Extent{number, false};
  };
  const Constant* limit = n.find_constant(1);
  if (!is(0, 0) || !is(2, 1) || limit->is_float || limit->stored() != 1) return std::nullopt;
  const Extent e = limit->ints->front();
  return e.batch && e.count > 0 ? std::optional(e) : std::nullopt;
}

Result<bool> fold_range(NodeImport& n) {
  for (size_t i = 0; i < 3; ++i) {
    if (!n.has_input(i)) return n.refuse("needs three inputs");
  }
  if (const auto samples = samples_of_range(n)) {
    if (!may_hold(stored_sizes({*samples})[0])) return too_large(n);
    std::vector<Extent> values;
    for (int64_t i = 0; i < stored_sizes({*samples})[0]; ++i) values.push_back({i, false});
    (void)n.give(with_dims(int_constant({}, std::move(values)), {*samples}));
    return true;
  }
  ASSIGN_OR_RETURN(const double start, n.number(0, "start"));
  ASSIGN_OR_RETURN(const double limit, n.number(1, "limit"));
  ASSIGN_OR_RETURN(const double delta, n.number(2, "delta"));
  const double count = delta == 0 ? -1 : std::ceil((limit - start) / delta);
  if (!(count <= static_cast<double>(kFoldedElementsMax)) || delta == 0) return too_large(n);
  const auto size = static_cast<int64_t>(std::max(count, 0.0));
  if (n.find_constant(0)->is_float) {
    std::vector<float> values;
    for (int64_t i = 0; i < size; ++i) {
      values.push_back(static_cast<float>(start + static_cast<double>(i) * delta));
    }
    (void)n.give(float_constant({size}, std::move(values)));
    return true;
  }
  std::vector<Extent> values;
  for (int64_t i = 0; i < size; ++i) {
    values.push_back({static_cast<int64_t>(start) + i * static_cast<int64_t>(delta), false});
  }
  (void)n.give(int_constant({size}, std::move(values)));
  return true;
}

Result<bool> fold_trilu(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  const Constant& c = *n.find_constant(0);
  const size_t rank = c.dims.size();
  if (rank < 2 || c.dims[rank - 1].batch || c.dims[rank - 2].batch) {
    return n.refuse("expected a matrix of fixed shape");
  }
  int64_t k = 0;
  if (n.has_input(1)) {
    ASSIGN_OR_RETURN(const double number, n.number(1, "k"));
    k = static_cast<int64_t>(std::clamp(number, -1e15, 1e15));
  }
  const bool upper = n.get_int("upper", 1) != 0;
  const int64_t columns = c.dims[rank - 1].count, rows = c.dims[rank - 2].count;
  const auto keeps = [&](int64_t i) {
    const int64_t column = i % columns, row = i / columns % rows;
    return upper ? column >= row + k : column <= row + k;
  };
  const int64_t count = product(stored_sizes(c.dims));
  if (!may_hold(count)) return too_large(n);
  std::vector<float> floats;
  std::vector<Extent> ints;
  for (int64_t i = 0; i < count; ++i) {
    if (c.is_float) {
      floats.push_back(keeps(i) ? at(*c.floats, c, i) : 0);
    } else {
      ints.push_back(keeps(i) ? at(*c.ints, c, i) : Extent{0, false});
    }
  }
  Constant result =
      c.is_float ? float_constant({}, std::move(floats)) : int_constant({}, std::move(ints));
  result.trainable = c.trainable;
  (void)n.give(with_dims(std::move(result), c.dims));
  return true;
}

}  // namespace

std::vector<ImportRow> constant_imports() {
  constexpr std::string_view kFolded = "its value";
  constexpr std::string_view kConstants = "inputs that depend on the model's input";
  std::vector<ImportRow> rows = {
      {.op = "Constant",
       .becomes = kFolded,
       .limits = "text, sparse tensors",
       .attributes = {{"value", A::kTensor},
                      {"value_float", A::kFloat},
                      {"value_floats", A::kFloats},
                      {"value_int", A::kInt},
                      {"value_ints", A::kInts}},
       .fold = fold_constant},
      {.op = "ConstantOfShape",
       .since = 9,
       .becomes = kFolded,
       .limits = kConstants,
       .attributes = {{"value", A::kTensor}},
       .fold = fold_constant_of_shape},
      {.op = "Shape",
       .becomes = kFolded,
       .attributes = {{"start"}, {"end"}},
       .import = import_shape,
       .fold = fold_shape},
      {.op = "Size", .becomes = kFolded, .import = import_size, .fold = fold_size},
      {.op = "Range", .since = 11, .becomes = kFolded, .limits = kConstants, .fold = fold_range},
      {.op = "Trilu",
       .since = 14,
       .becomes = kFolded,
       .limits = kConstants,
       .attributes = {{"upper"}},
       .fold = fold_trilu},
      {.op = "Not", .becomes = kFolded, .limits = kConstants, .fold = fold_not},
      {.op = "Mod",
       .since = 10,
       .becomes = kFolded,
       .limits = kConstants,
       .attributes = {{"fmod"}},
       .fold = fold_arithmetic},
      {.op = "IsInf",
       .since = 10,
       .becomes = kFolded,
       .limits = kConstants,
       .attributes = {{"detect_positive"}, {"detect_negative"}},
       .fold = fold_is}};
  for (const std::string_view op :
       {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"}) {
    const bool is_greater = op == "Greater";
    rows.push_back(
        {.op = op,
         .since = op.ends_with("OrEqual") ? 12 : 1,
         .becomes = is_greater ? "its value; softplus, with the nodes around it" : kFolded,
         .limits = is_greater ? "inputs that depend on the model's input, except in softplus"
                              : kConstants,
         .import = is_greater ? import_greater : nullptr,
         .fold = fold_arithmetic});
  }
  for (const auto& [op, since] : {std::pair("Floor", 1),
                                  {"Ceil", 1},
                                  {"Round", 11},
                                  {"Sign", 9},
                                  {"Sin", 7},
                                  {"Cos", 7},
                                  {"Tan", 7},
                                  {"Atan", 7}}) {
    rows.push_back(
        {.op = op, .since = since, .becomes = kFolded, .limits = kConstants, .fold = fold_unary});
  }
  return rows;
}

}  // namespace trainyard::onnx
