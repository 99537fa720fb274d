// Imports operations that move elements. Most of them only change a view (import_value.h). A layer
// is created only if a later operation needs the elements in that order.
#include <algorithm>
#include <limits>
#include <numeric>

#include "src/onnx/constant_elements.h"
#include "src/onnx/importer_axes.h"

namespace trainyard::onnx {
namespace {

using A = AttributeSpec;
using Ints = std::vector<int64_t>;

// --- operations that only change the view ---

Status import_transpose(NodeImport& n) {
  ASSIGN_OR_RETURN(const View x, n.view(0));
  Ints perm(x.dims.size());
  std::iota(perm.rbegin(), perm.rend(), 0);
  ASSIGN_OR_RETURN(perm, n.axes(n.get_ints("perm", perm), x.rank()));
  if (perm.size() != x.dims.size()) return n.refuse("perm does not name every dimension");
  View y = x;
  for (size_t i = 0; i < perm.size(); ++i) y.dims[i] = x.dims[static_cast<size_t>(perm[i])];
  return n.give(y);
}

Status import_reshape(NodeImport& n) {
  ASSIGN_OR_RETURN(const std::vector<Extent> shape, n.extents(1, "the shape"));
  ASSIGN_OR_RETURN(const View x, n.view(0));
  ASSIGN_OR_RETURN(const std::vector<Extent> target, reshape_target(n, x.extents(), shape));
  return n.give(n.importer().reshape(x, target));
}

Status import_flatten(NodeImport& n) {
  ASSIGN_OR_RETURN(const View x, n.view(0));
  int64_t axis = n.get_int("axis", 1);
  if (axis < 0)
    axis += x.rank();  // a negative axis counts from the rank, although axis may also be equal to
                       // the rank
  ASSIGN_OR_RETURN(axis, n.axis(axis, x.rank() + 1));
  View y = x;
  y.dims.assign(2, {});
  for (int64_t i = 0; i < x.rank(); ++i) {
    const std::vector<int>& dim = x.dims[static_cast<size_t>(i)];
    auto& into = y.dims[i < axis ? 0 : 1];
    into.insert(into.end(), dim.begin(), dim.end());
  }
  return n.give(y);
}

Status import_squeeze(NodeImport& n) {
  ASSIGN_OR_RETURN(const auto given, n.ints_of("axes", 1));
  ASSIGN_OR_RETURN(const View x, n.view(0));
  ASSIGN_OR_RETURN(const Ints axes, n.axes(given.value_or(Ints()), x.rank()));
  View y = x;
  y.dims.clear();
  for (int64_t i = 0; i < x.rank(); ++i) {
    const std::vector<int>& dim = x.dims[static_cast<size_t>(i)];
    const bool named = std::ranges::find(axes, i) != axes.end();
    if (named && !dim.empty()) return n.refuse("a squeezed dimension is not 1");
    if (!named && (given || !dim.empty())) y.dims.push_back(dim);
  }
  return n.give(y);
}

Status import_unsqueeze(NodeImport& n) {
  ASSIGN_OR_RETURN(const auto given, n.ints_of("axes", 1));
  if (!given) return n.refuse("axes are missing");
  ASSIGN_OR_RETURN(View x, n.view(0));
  ASSIGN_OR_RETURN(Ints axes, n.axes(*given, x.rank() + std::ssize(*given)));
  std::ranges::sort(axes);
  for (const int64_t axis : axes) x.dims.insert(x.dims.begin() + axis, std::vector<int>{});
  return n.give(x);
}

// --- slices, splits and concatenation ---

struct Cut {
  int64_t start = 0, end = 0, step = 1;
};

/// Slices several dimensions of a view with one layer.
Result<View> slice(NodeImport& n, const View& x, const std::map<int64_t, Cut>& cuts) {
  ASSIGN_OR_RETURN(const Importer::Canonical c, n.importer().canonical(x, /*keep_ones=*/true));
  Ints starts, ends, axes, steps;
  for (const auto& [axis, cut] : cuts) {
    const int64_t at = c.axis[static_cast<size_t>(axis)];
    if (at < 0) return n.refuse("cuts the batch or a dimension that includes it");
    starts.push_back(cut.start);
    ends.push_back(cut.end);
    steps.push_back(cut.step);
    axes.push_back(at);
  }
  Attributes a{{"starts", starts}, {"ends", ends}, {"axes", axes}};
  if (std::ranges::any_of(steps, [](int64_t s) { return s != 1; })) a.set("steps", steps);
  ASSIGN_OR_RETURN(const std::string layer,
                   n.importer().add_layer("Slice", std::move(a), {c.layer}));
  return resized(c, layer, n.importer().sizes_of(layer));
}

Status import_slice(NodeImport& n) {
  ASSIGN_OR_RETURN(const View x, n.view(0));
  ASSIGN_OR_RETURN(const SliceArguments a, slice_arguments(n, x.rank()));
  std::map<int64_t, Cut> cuts;
  for (size_t i = 0; i < a.axes.size(); ++i) {
    const Extent size = x.extent(x.dims[static_cast<size_t>(a.axes[i])]);
    if (a.takes_all(i, size)) continue;
    if (size.batch || a.ends[i].batch) return n.refuse("cuts the batch");
    if (a.steps[i] < 1) {
      return n.refuse("step " + std::to_string(a.steps[i]) + ", expected 1 or more");
    }
    const int64_t last = size.count;
    const auto bounded = [last](int64_t p) {
      return std::clamp<int64_t>(p < 0 ? p + last : p, 0, last);
    };
    const Cut cut{bounded(a.starts[i]), bounded(a.ends[i].count), std::min(a.steps[i], last)};
    if (cut.start >= cut.end) return n.refuse("selects nothing");
    cuts[a.axes[i]] = cut;
  }
  if (cuts.empty()) return n.give(x);
  return n.give(slice(n, x, cuts));
}

/// Returns an input of a Concat. A constant of a fixed batch gets the batch where other parts have
/// it.
Result<View> part_of_concat(NodeImport& n, size_t i) {
  const Constant* c = n.find_constant(i);
  if (c == nullptr) return n.view(i);
  Constant open = *c;
  for (size_t k = 0; k < n.input_count(); ++k) {
    if (n.has_input(k)) open = with_open_batch(open, n.dims(k), n.fixed_batch());
  }
  return n.importer().to_view(open);
}

Status import_concat(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("input 0 is left out");
  const auto rank = std::ssize(n.dims(0));
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 1), rank));
  const auto at = static_cast<size_t>(axis);
  std::vector<std::string> inputs;
  std::optional<Importer::Canonical> first;
  std::vector<View> parts;
  for (size_t i = 0; i < n.input_count(); ++i) {
    ASSIGN_OR_RETURN(View x, part_of_concat(n, i));
    if (x.rank() != rank)
      return n.refuse("shape " + to_string(x.extents()) + " differs in rank from the first");
    if (x.extent(x.dims[at]).batch) return n.refuse("joins samples");
    parts.push_back(std::move(x));
  }
  // If a dimension is the batch in one part, it becomes the batch in the parts that do not depend
  // on the input, such as parameters, which are the same for every sample.
  for (View& x : parts) {
    for (size_t k = 0; k < x.dims.size(); ++k) {
      const bool batch = std::ranges::any_of(
          parts, [&](const View& other) { return other.dims[k] == std::vector<int>{0}; });
      if (batch && x.dims[k].empty() && !n.importer().has_batch(x.layer)) x.dims[k] = {0};
      for (const View& other : parts) {
        const bool fits = k == at || x.extent(x.dims[k]) == other.extent(other.dims[k]) ||
                          (batch && other.dims[k].empty());
        if (!fits)
          return n.refuse("shapes " + to_string(x.extents()) + " and " +
                          to_string(other.extents()) + " do not fit");
      }
    }
  }
  for (const View& x : parts) {
    ASSIGN_OR_RETURN(Importer::Canonical c, n.importer().canonical(x, /*keep_ones=*/true));
    if (c.axis[at] < 0) return n.refuse("joins along a dimension that includes the batch");
    if (first && (c.axis != first->axis || c.view.dims.size() != first->view.dims.size())) {
      return n.refuse("the batch is in different dimensions of the inputs");
    }
    inputs.push_back(c.layer);
    if (!first) first = std::move(c);
  }
  if (inputs.size() == 1) return n.give(first->view);
  ASSIGN_OR_RETURN(const std::string layer,
                   n.importer().add_layer("Concat", {{"axis", first->axis[at]}}, inputs));
  return n.give(resized(*first, layer, n.importer().sizes_of(layer)));
}

// --- padding and expansion ---

Status import_pad(NodeImport& n) {
  ASSIGN_OR_RETURN(const auto pads, n.ints_of("pads", 1));
  ASSIGN_OR_RETURN(const View x, n.view(0));
  Ints axes(x.dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (n.has_input(3)) {
    ASSIGN_OR_RETURN(axes, n.ints(3, "axes"));
  }
  ASSIGN_OR_RETURN(axes, n.axes(axes, x.rank()));
  if (!pads || pads->size() != 2 * axes.size())
    return n.refuse("pads does not have two entries per dimension");
  double value = n.get_float("value", 0);
  if (n.has_input(2)) {
    ASSIGN_OR_RETURN(value, n.number(2, "value"));
  }
  const std::string mode = n.get_text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge")
    return n.refuse("mode " + mode + " is not supported");
  ASSIGN_OR_RETURN(const Importer::Canonical c, n.importer().canonical(x, /*keep_ones=*/true));
  Ints before, behind, at;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t first = (*pads)[i], last = (*pads)[i + axes.size()];
    if (first == 0 && last == 0) continue;
    const int64_t axis = c.axis[static_cast<size_t>(axes[i])];
    if (axis < 0) return n.refuse("pads the batch");
    if (first < 0 || last < 0) return n.refuse("negative pads are not supported, expected a Slice");
    before.push_back(first);
    behind.push_back(last);
    at.push_back(axis);
  }
  if (at.empty()) return n.give(x);
  Ints all = before;
  all.insert(all.end(), behind.begin(), behind.end());
  Attributes a{{"pads", all}, {"axes", at}, {"mode", mode}};
  if (mode == "constant" && value != 0) a.set("value", value);
  ASSIGN_OR_RETURN(const std::string layer, n.importer().add_layer("Pad", std::move(a), {c.layer}));
  return n.give(resized(c, layer, n.importer().sizes_of(layer)));
}

Status import_expand(NodeImport& n) {
  ASSIGN_OR_RETURN(std::vector<Extent> wanted, n.extents(1, "the shape"));
  ASSIGN_OR_RETURN(View x, n.view(0));
  return n.give(expanded(n, std::move(x), std::move(wanted)));
}

// A dimension of several elements is repeated as a new dimension in front of it, with which it is
// then merged.
Status import_tile(NodeImport& n) {
  ASSIGN_OR_RETURN(const std::vector<Extent> repeats, n.extents(1, "repeats"));
  ASSIGN_OR_RETURN(View x, n.view(0));
  if (repeats.size() != x.dims.size()) return n.refuse("repeats does not name every dimension");
  std::vector<Extent> wanted;
  for (size_t i = 0; i < repeats.size(); ++i) {
    const Extent now = x.extent(x.dims[2 * i]);
    x.dims.insert(x.dims.begin() + 2 * static_cast<std::ptrdiff_t>(i), std::vector<int>{});
    wanted.push_back(repeats[i]);
    wanted.push_back(now);
  }
  ASSIGN_OR_RETURN(View y, expanded(n, std::move(x), std::move(wanted)));
  for (size_t i = 0; i < repeats.size(); ++i) {
    std::vector<int> second = std::move(y.dims[i + 1]);
    y.dims.erase(y.dims.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (!y.dims[i].empty() && holds_batch(second)) return n.refuse("repeats the batch");
    y.dims[i].insert(y.dims[i].end(), second.begin(), second.end());
  }
  return n.give(std::move(y));
}

// --- reductions ---

Status import_reduce(NodeImport& n) {
  ASSIGN_OR_RETURN(const auto given, n.ints_of("axes", 1));
  ASSIGN_OR_RETURN(View x, n.view(0));
  // Without axes it reduces over all of them, or, if it says so, over none: then each element is a
  // sum of its own, and its absolute value or square is still taken.
  const bool none = (!given || given->empty()) && n.get_int("noop_with_empty_axes", 0) != 0;
  std::string op(n.op());
  if (op == "ReduceL1" || (op == "ReduceL2" && none)) {
    ASSIGN_OR_RETURN(x, n.importer().unary("Abs", {}, x));
  } else if (op == "ReduceSumSquare") {
    ASSIGN_OR_RETURN(x, n.importer().binary("Mul", x, x));
  }
  if (none) return n.give(x);
  Ints all(x.dims.size());
  std::iota(all.begin(), all.end(), 0);
  ASSIGN_OR_RETURN(const Ints axes, n.axes(given && !given->empty() ? *given : all, x.rank()));
  if (op == "ReduceL1" || op == "ReduceSumSquare") op = "ReduceSum";
  ASSIGN_OR_RETURN(const Importer::Canonical c, n.importer().canonical(x));
  Ints at;
  for (const int64_t axis : axes) {
    const auto i = static_cast<size_t>(axis);
    if (x.extent(x.dims[i]).batch) return n.refuse("reduces over the batch, which mixes samples");
    if (c.axis[i] > 0) at.push_back(c.axis[i]);
  }
  std::ranges::sort(at);
  const bool keeps = n.get_int("keepdims", 1) != 0;
  View y;
  y.layer = c.layer;
  for (size_t k = 0; k < c.view.dims.size(); ++k) {
    const bool gone = std::ranges::find(axes, static_cast<int64_t>(k)) != axes.end();
    if (gone && !keeps) continue;
    auto& dim = y.dims.emplace_back();
    if (gone) continue;
    for (const int atom : c.view.dims[k]) {
      dim.push_back(atom == 0 ? 0 : static_cast<int>(y.atoms.size()));
      if (atom != 0) y.atoms.push_back(c.view.atoms[static_cast<size_t>(atom)]);
    }
  }
  if (at.empty()) {
    if (op == "ReduceL2") {
      ASSIGN_OR_RETURN(y, n.importer().unary("Abs", {}, y));
    }
    return n.give(y);
  }
  Attributes a{{"axes", at}};
  // At least one axis of the sample must remain.
  if (!keeps && at.size() < n.importer().sizes_of(c.layer).size()) a.set("keepdims", int64_t{0});
  ASSIGN_OR_RETURN(y.layer, n.importer().add_layer(op, std::move(a), {c.layer}));
  return n.give(y);
}

}  // namespace

View resized(const Importer::Canonical& c, const std::string& layer, const Ints& sizes) {
  View y;
  y.layer = layer;
  for (size_t k = 0; k < c.view.dims.size(); ++k) {
    if (c.axis[k] > 0) {
      y.push_dim(sizes[static_cast<size_t>(c.axis[k] - 1)]);
      continue;
    }
    auto& dim = y.dims.emplace_back();
    for (const int atom : c.view.dims[k]) {
      dim.push_back(atom == 0 ? 0 : static_cast<int>(y.atoms.size()));
      if (atom != 0) y.atoms.push_back(c.view.atoms[static_cast<size_t>(atom)]);
    }
  }
  return y;
}

Result<View> take_index(NodeImport& n, const View& x, int64_t axis, int64_t index) {
  const Extent size = x.extent(x.dims[static_cast<size_t>(axis)]);
  const int64_t at = index < 0 ? index + size.count : index;
  if (size.batch) return n.refuse("selects samples from the batch");
  if (at < 0 || at >= size.count)
    return n.refuse("index " + std::to_string(index) + " is out of range");
  View y = x;
  if (size.count > 1) {
    ASSIGN_OR_RETURN(y, slice(n, x, {{axis, {at, at + 1, 1}}}));
  }
  y.dims.erase(y.dims.begin() + axis);
  return y;
}

Result<View> expanded(NodeImport& n, View x, std::vector<Extent> wanted) {
  while (x.dims.size() < wanted.size()) x.dims.insert(x.dims.begin(), std::vector<int>{});
  while (wanted.size() < x.dims.size()) wanted.insert(wanted.begin(), Extent{});
  const auto fixed = n.fixed_batch();
  const bool is_batched = n.importer().has_batch(x.layer);
  bool grows = false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Extent now = x.extent(x.dims[i]);
    if (wanted[i] == now || wanted[i] == Extent{}) continue;
    if (now.batch && fixed && wanted[i] == Extent{now.count * *fixed, false}) continue;
    if (!x.dims[i].empty()) return n.refuse(to_string(x.extents()) + " to " + to_string(wanted));
    // A file with a fixed batch repeats a class token as often as there are samples.
    const bool is_fixed = i == 0 && !is_batched && fixed && wanted[i] == Extent{*fixed, false};
    if (wanted[i] == Extent{1, true} || is_fixed) {
      if (is_batched) return n.refuse("repeats a value of one sample for all others");
      x.dims[i] = {0};  // broadcast where it is used, since it is the same for every sample
      continue;
    }
    if (wanted[i].batch || wanted[i].count < 1) return n.refuse("to " + to_string(wanted));
    grows = true;
  }
  if (!grows) return x;
  ASSIGN_OR_RETURN(const Importer::Canonical c, n.importer().canonical(x, /*keep_ones=*/true));
  Ints shape = n.importer().sizes_of(c.layer);
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (c.axis[k] < 0) continue;
    int64_t& size = shape[static_cast<size_t>(c.axis[k] - 1)];
    size = std::max(size, wanted[k].count);
  }
  ASSIGN_OR_RETURN(const std::string layer,
                   n.importer().add_layer("Expand", {{"shape", shape}}, {c.layer}));
  return resized(c, layer, n.importer().sizes_of(layer));
}

/// Returns the ascending ranges of equal steps of which a list consists.
std::vector<Cut> ranges_of(const Ints& list) {
  std::vector<Cut> ranges;
  for (size_t i = 0; i < list.size();) {
    size_t end = i + 1;
    const int64_t step = end < list.size() && list[end] > list[i] ? list[end] - list[i] : 1;
    while (end < list.size() && list[end] - list[end - 1] == step) ++end;
    ranges.push_back({list[i], list[end - 1] + 1, step});
    i = end;
  }
  return ranges;
}

Result<View> take_list(NodeImport& n, const View& x, int64_t axis, const Ints& indices) {
  constexpr size_t kRangesMax = 64;
  const auto at = static_cast<size_t>(axis);
  const Extent size = x.extent(x.dims[at]);
  if (size.batch) return n.refuse("selects samples from the batch");
  if (indices.empty()) return n.refuse("selects nothing");
  Ints list;
  for (const int64_t index : indices) {
    list.push_back(index < 0 ? index + size.count : index);
    if (list.back() < 0 || list.back() >= size.count)
      return n.refuse("index " + std::to_string(index) + " is out of range");
  }
  const std::vector<Cut> ranges = ranges_of(list);
  if (ranges.size() == 1) return slice(n, x, {{axis, ranges[0]}});
  if (ranges.size() > kRangesMax) {
    return n.refuse("selects elements in an order of more than " + std::to_string(kRangesMax) +
                    " ranges");
  }
  ASSIGN_OR_RETURN(const Importer::Canonical c, n.importer().canonical(x, /*keep_ones=*/true));
  std::vector<std::string> parts;
  for (const Cut& cut : ranges) {
    Attributes a{{"starts", Ints{cut.start}}, {"ends", Ints{cut.end}}, {"axes", Ints{c.axis[at]}}};
    if (cut.step != 1) a.set("steps", Ints{cut.step});
    ASSIGN_OR_RETURN(parts.emplace_back(),
                     n.importer().add_layer("Slice", std::move(a), {c.layer}));
  }
  ASSIGN_OR_RETURN(const std::string layer,
                   n.importer().add_layer("Concat", {{"axis", c.axis[at]}}, parts));
  return resized(c, layer, n.importer().sizes_of(layer));
}

std::vector<ImportRow> shape_imports() {
  const std::string_view view = "reshape, transpose, if needed";
  std::vector<ImportRow> rows = {
      {.op = "Transpose",
       .becomes = "transpose, if needed",
       .attributes = {{"perm", A::kInts}},
       .import = import_transpose,
       .fold = fold_movement},
      {.op = "Reshape",
       .becomes = view,
       .limits = "sizes that mix samples",
       .attributes = {{"allowzero"}},
       .import = import_reshape,
       .fold = fold_movement},
      {.op = "Flatten",
       .becomes = "flatten, if needed",
       .attributes = {{"axis"}},
       .import = import_flatten,
       .fold = fold_movement},
      {.op = "Squeeze",
       .becomes = "reshape, if needed",
       .attributes = {{"axes", A::kInts}},
       .import = import_squeeze,
       .fold = fold_movement},
      {.op = "Unsqueeze",
       .becomes = "reshape, if needed",
       .attributes = {{"axes", A::kInts}},
       .import = import_unsqueeze,
       .fold = fold_movement},
      {.op = "Slice",
       .becomes = "slice",
       .limits = "of the batch; steps below 1",
       .attributes = {{"starts", A::kInts}, {"ends", A::kInts}, {"axes", A::kInts}},
       .import = import_slice,
       .fold = fold_movement},
      {.op = "Tile",
       .becomes = "expand",
       .limits = "of the batch",
       .import = import_tile,
       .fold = fold_movement},
      {.op = "Concat",
       .becomes = "concat",
       .limits = "of samples",
       .attributes = {{"axis"}},
       .import = import_concat,
       .fold = fold_movement},
      {.op = "Pad",
       .becomes = "pad",
       .limits = "of the batch; negative pads; mode wrap",
       .attributes = {{"pads", A::kInts}, {"value", A::kFloat}, {"mode", A::kText}},
       .import = import_pad},
      {.op = "Expand",
       .since = 8,
       .becomes = "expand",
       .limits = "of one sample to several",
       .import = import_expand,
       .fold = fold_movement}};
  for (const auto& [op, becomes] : {std::pair("ReduceSum", "reduce_sum"),
                                    {"ReduceMean", "reduce_mean"},
                                    {"ReduceMin", "reduce_min"},
                                    {"ReduceMax", "reduce_max"},
                                    {"ReduceL1", "abs, reduce_sum"},
                                    {"ReduceL2", "reduce_l2"},
                                    {"ReduceSumSquare", "mul, reduce_sum"}}) {
    rows.push_back({.op = op,
                    .becomes = becomes,
                    .limits = "over the batch",
                    .attributes = {{"axes", A::kInts}, {"keepdims"}, {"noop_with_empty_axes"}},
                    .import = import_reduce,
                    .fold = fold_reduce});
  }
  return rows;
}

}  // namespace trainyard::onnx
