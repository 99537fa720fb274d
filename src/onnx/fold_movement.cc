// Operations on constants that move elements and do not change their values.
#include <algorithm>
#include <numeric>

#include "src/onnx/constant_elements.h"

namespace trainyard::onnx {
namespace {

Result<bool> fold_transpose(NodeImport& n, const Constant& c, const std::vector<int64_t>& dims) {
  std::vector<int64_t> perm(dims.size());
  std::iota(perm.rbegin(), perm.rend(), 0);
  perm = n.get_ints("perm", perm);
  ASSIGN_OR_RETURN(perm, n.axes(perm, std::ssize(dims)));
  if (perm.size() != dims.size()) return n.refuse("perm does not name every dimension");
  const std::vector<int64_t> strides = strides_of(dims);
  std::vector<int64_t> turned, steps;
  for (const int64_t p : perm) {
    turned.push_back(dims[static_cast<size_t>(p)]);
    steps.push_back(strides[static_cast<size_t>(p)]);
  }
  Constant result = strided(c, turned, 0, steps);
  if (perm == std::vector<int64_t>{1, 0}) {
    result.initializer = c.initializer;
    result.transposed = !c.transposed;
  }
  (void)n.give(std::move(result));
  return true;
}

Result<bool> fold_gather(NodeImport& n, const Constant& c, const std::vector<int64_t>& dims) {
  const Constant* indices = n.find_constant(1);
  if (indices->is_float || has_batch(*indices->ints) || has_batch(indices->dims)) {
    return n.refuse("indices are not static whole numbers");
  }
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 0), std::ssize(dims)));
  const int64_t size = dims[static_cast<size_t>(axis)];
  std::vector<int64_t> at;
  const auto count = static_cast<size_t>(indices->elements());
  for (size_t i = 0; i < count; ++i) {
    const int64_t given = (*indices->ints)[indices->is_splat ? 0 : i].count;
    at.push_back(given < 0 ? given + size : given);
    if (at.back() < 0 || at.back() >= size) return n.refuse("an index is out of range");
  }
  std::vector<int64_t> result(dims.begin(), dims.begin() + axis);
  for (const Extent& e : indices->dims) result.push_back(e.count);
  result.insert(result.end(), dims.begin() + axis + 1, dims.end());
  if (!may_hold(product(result))) return too_large(n);
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(axis) + 1; i < dims.size(); ++i) inner *= dims[i];
  const auto middle = std::ssize(at);
  (void)n.give(picked(c, result, [&](int64_t i) {
    const int64_t outer = i / (inner * middle), row = i / inner % middle;
    return (outer * size + at[static_cast<size_t>(row)]) * inner + i % inner;
  }));
  return true;
}

Result<bool> fold_slice(NodeImport& n, const Constant& c, const std::vector<int64_t>& dims) {
  ASSIGN_OR_RETURN(const auto starts, n.ints_of("starts", 1));
  ASSIGN_OR_RETURN(const auto ends, n.ints_of("ends", 2));
  ASSIGN_OR_RETURN(const auto given_axes, n.ints_of("axes", 3));
  if (!starts || !ends || starts->size() != ends->size())
    return n.refuse("starts and ends differ in length");
  std::vector<int64_t> axes(starts->size()), by(starts->size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  ASSIGN_OR_RETURN(axes, n.axes(given_axes.value_or(axes), std::ssize(dims)));
  if (n.has_input(4)) {
    ASSIGN_OR_RETURN(by, n.ints(4, "steps"));
  }
  if (axes.size() != starts->size() || by.size() != starts->size()) {
    return n.refuse("starts, ends, axes and steps have different lengths");
  }
  std::vector<int64_t> result = dims, steps = strides_of(dims);
  int64_t offset = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i]);
    const int64_t size = dims[axis], step = by[i];
    if (size == 0) continue;
    if (step == 0 || step == std::numeric_limits<int64_t>::min()) return n.refuse("a step is 0");
    const auto from_front = [size](int64_t p) { return p < 0 ? p + size : p; };
    int64_t start = from_front((*starts)[i]), end = from_front((*ends)[i]);
    start =
        step > 0 ? std::clamp<int64_t>(start, 0, size) : std::clamp<int64_t>(start, 0, size - 1);
    end = step > 0 ? std::clamp<int64_t>(end, 0, size) : std::clamp<int64_t>(end, -1, size - 1);
    const int64_t span = step > 0 ? end - start : start - end;
    const int64_t stride = std::min<int64_t>(step > 0 ? step : -step, size + 1);
    result[axis] = span <= 0 ? 0 : (span + stride - 1) / stride;
    offset += start * steps[axis];
    steps[axis] *= step > 0 ? stride : -stride;
  }
  (void)n.give(strided(c, result, offset, steps));
  return true;
}

Result<bool> fold_concat(NodeImport& n) {
  const auto rank = std::ssize(n.dims(0));
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 1), rank));
  const auto at = static_cast<size_t>(axis);
  std::vector<int64_t> dims = counts_of(n.dims(0));
  dims[at] = 0;
  std::vector<Extent> ints;
  std::vector<float> floats;
  std::vector<Origin> origins;
  bool trainable = false, has_origins = false;
  const bool is_float = n.find_constant(0)->is_float;
  int64_t outer = 1;
  for (size_t i = 0; i < at; ++i) outer *= dims[i];
  for (size_t i = 0; i < n.input_count(); ++i) {
    if (!n.has_input(i)) return n.refuse("input " + std::to_string(i) + " is left out");
    const Constant* c = n.find_constant(i);
    std::vector<int64_t> part = counts_of(c->dims);
    if (c->is_float != is_float || c->is_splat || has_batch(c->dims) ||
        part.size() != dims.size()) {
      return false;
    }
    trainable = trainable || c->trainable;
    has_origins = has_origins || c->origins != nullptr;
    dims[at] += part[at];
    part[at] = 0;
    for (size_t k = 0; k < dims.size(); ++k) {
      if (k != at && part[k] != dims[k]) return n.refuse("the parts have different sizes");
    }
  }
  if (!may_hold(product(dims))) return too_large(n);
  for (int64_t row = 0; row < outer; ++row) {
    for (size_t i = 0; i < n.input_count(); ++i) {
      const Constant* c = n.find_constant(i);
      const int64_t width = outer == 0 ? 0 : c->elements() / outer;
      const auto append = [&](auto& into, const auto& from) {
        if (c->is_splat) {
          into.insert(into.end(), static_cast<size_t>(width), from.front());
        } else {
          into.insert(into.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
        }
      };
      if (is_float) {
        append(floats, *c->floats);
      } else {
        append(ints, *c->ints);
      }
      if (!has_origins) continue;
      if (c->origins) {
        append(origins, *c->origins);
      } else {
        origins.resize(floats.size(), kFixed);
      }
    }
  }
  Constant result =
      is_float ? float_constant(dims, std::move(floats)) : int_constant(dims, std::move(ints));
  result.trainable = trainable;
  if (has_origins) result.origins = std::make_shared<const std::vector<Origin>>(std::move(origins));
  (void)n.give(std::move(result));
  return true;
}

// A repeated parameter must stay one parameter, so an Expand layer repeats it and nothing is
// folded.
Result<bool> fold_expand(NodeImport& n, const Constant& c, const std::vector<int64_t>& dims) {
  ASSIGN_OR_RETURN(const std::vector<Extent> wanted, n.extents(1, "the shape"));
  if (c.uniform() && !c.trainable && (has_batch(wanted) || c.stored() == 1)) {
    std::vector<Extent> result = extents_of(dims);
    if (result.size() < wanted.size()) {
      result.insert(result.begin(), wanted.size() - result.size(), Extent{});
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      Extent& e = result[result.size() - wanted.size() + i];
      if (e == Extent{}) e = wanted[i];
    }
    if (!may_hold(product(counts_of(result)))) return too_large(n);
    Constant splat = with_dims(c, std::move(result));
    splat.is_splat = true;
    if (c.is_float) {
      splat.floats = std::make_shared<const std::vector<float>>(1, c.floats->front());
    } else {
      splat.ints = std::make_shared<const std::vector<Extent>>(1, c.ints->front());
    }
    (void)n.give(std::move(splat));
    return true;
  }
  if (has_batch(wanted)) return false;
  const auto result = broadcast_dims(dims, counts_of(wanted));
  if (!result) return n.refuse("does not broadcast to the shape");
  if (!may_hold(product(*result))) return too_large(n);
  if (c.trainable && product(*result) != c.elements()) return false;
  (void)n.give(strided(c, *result, 0, *broadcast_steps(dims, *result)));
  return true;
}

Result<bool> fold_squeeze(NodeImport& n, const Constant& c) {
  ASSIGN_OR_RETURN(const auto given, n.ints_of("axes", 1));
  const auto rank = std::ssize(c.dims);
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes,
                   n.axes(given.value_or(std::vector<int64_t>()), rank));
  std::vector<Extent> dims;
  for (int64_t i = 0; i < rank; ++i) {
    const Extent& e = c.dims[static_cast<size_t>(i)];
    const bool named = std::ranges::find(axes, i) != axes.end();
    if (named && e != Extent{}) return n.refuse("a squeezed dimension is not 1");
    if (!named && (given || e != Extent{})) dims.push_back(e);
  }
  (void)n.give(with_dims(c, std::move(dims)));
  return true;
}

Result<bool> fold_unsqueeze(NodeImport& n, const Constant& c) {
  ASSIGN_OR_RETURN(const auto given, n.ints_of("axes", 1));
  if (!given) return n.refuse("axes are missing");
  const int64_t rank = std::ssize(c.dims) + std::ssize(*given);
  ASSIGN_OR_RETURN(const std::vector<int64_t> axes, n.axes(*given, rank));
  std::vector<Extent> dims = c.dims;
  std::vector<int64_t> ascending = axes;
  std::ranges::sort(ascending);
  for (const int64_t axis : ascending) dims.insert(dims.begin() + axis, Extent{});
  (void)n.give(with_dims(c, std::move(dims)));
  return true;
}

// Moves a constant whose shape includes the batch, such as the initial state of an LSTM. A single
// number represents all elements, so only the dimensions change.
Result<bool> fold_open_splat(NodeImport& n, const Constant& c) {
  constexpr int64_t kStandIn = int64_t{1} << 30;  // in place of the batch size
  if (n.op() == "Transpose") {
    std::vector<int64_t> perm(c.dims.size());
    std::iota(perm.rbegin(), perm.rend(), 0);
    ASSIGN_OR_RETURN(perm, n.axes(n.get_ints("perm", perm), std::ssize(c.dims)));
    std::vector<Extent> dims;
    for (const int64_t p : perm) dims.push_back(c.dims[static_cast<size_t>(p)]);
    (void)n.give(with_dims(c, std::move(dims)));
    return true;
  }
  if (n.op() == "Slice") {
    std::vector<int64_t> dims = counts_of(c.dims);
    for (size_t i = 0; i < dims.size(); ++i) {
      if (c.dims[i].batch) dims[i] = kStandIn;
    }
    ASSIGN_OR_RETURN(const bool folded, fold_slice(n, c, dims));
    Constant cut = std::get<Constant>(*n.importer().find(n.node().outputs[0]));
    for (size_t i = 0; i < dims.size(); ++i) {
      if (!c.dims[i].batch) continue;
      if (cut.dims[i].count != kStandIn) return n.refuse("cuts the batch");
      cut.dims[i] = c.dims[i];
    }
    (void)n.give(std::move(cut));
    return folded;
  }
  return n.refuse("a constant whose shape includes the batch is not supported");
}

}  // namespace

Result<std::vector<Extent>> reshape_target(NodeImport& n, const std::vector<Extent>& from,
                                           const std::vector<Extent>& shape) {
  std::vector<Extent> target = shape;
  Extent all, known;
  for (const Extent& e : from) all = {all.count * e.count, all.batch || e.batch};
  std::optional<size_t> open;
  for (size_t i = 0; i < target.size(); ++i) {
    Extent& e = target[i];
    if (e == Extent{0, false} && n.get_int("allowzero", 0) == 0) {
      if (i >= from.size()) return n.refuse("0 refers to a dimension that does not exist");
      e = from[i];
    }
    if (e == Extent{-1, false}) {
      if (open) return n.refuse("two sizes are -1");
      open = i;
      continue;
    }
    if (e.count < 1) return n.refuse("size " + std::to_string(e.count) + " is not supported");
    if (__builtin_mul_overflow(known.count, e.count, &known.count))
      return n.refuse("a size is too large");
    known.batch = known.batch || e.batch;
  }
  if (!open) return target;
  Extent left{all.count / known.count, all.batch && !known.batch};
  // If the file fixes the batch, `known` may include it as a plain number.
  const auto batch = n.importer().fixed_batch();
  if (all.batch && !known.batch && batch && all.count % known.count != 0 &&
      all.count * *batch % known.count == 0) {
    left = {all.count * *batch / known.count, false};
  } else if (all.count % known.count != 0 || (known.batch && !all.batch)) {
    return n.refuse(to_string(from) + " cannot be reshaped to " + to_string(shape));
  }
  target[*open] = left;
  return target;
}

Result<bool> fold_movement(NodeImport& n) {
  if (n.op() == "Concat") return fold_concat(n);
  if (!n.has_input(0)) return n.refuse("has no input");
  const Constant& c = *n.find_constant(0);
  const std::string_view op = n.op();
  if (op == "Identity" || op == "Dropout") {
    (void)n.give(c);
    return true;
  }
  if (op == "Squeeze") return fold_squeeze(n, c);
  if (op == "Unsqueeze") return fold_unsqueeze(n, c);
  if (has_batch(c.dims)) return fold_open_splat(n, c);
  const std::vector<int64_t> dims = counts_of(c.dims);
  if (op == "Transpose") return fold_transpose(n, c, dims);
  if (op == "Gather") return n.has_input(1) ? fold_gather(n, c, dims) : n.refuse("has no indices");
  if (op == "Slice") return fold_slice(n, c, dims);
  if (op == "Expand") return fold_expand(n, c, dims);
  if (op == "Flatten") {
    int64_t axis = n.get_int("axis", 1);
    if (axis < 0) axis += std::ssize(dims);
    ASSIGN_OR_RETURN(axis, n.axis(axis, std::ssize(dims) + 1));
    Extent rows, columns;
    for (size_t i = 0; i < dims.size(); ++i) {
      (static_cast<int64_t>(i) < axis ? rows : columns).count *= dims[i];
    }
    (void)n.give(with_dims(c, {rows, columns}));
    return true;
  }
  if (op == "Reshape") {
    ASSIGN_OR_RETURN(const std::vector<Extent> shape, n.extents(1, "the shape"));
    ASSIGN_OR_RETURN(const std::vector<Extent> target, reshape_target(n, c.dims, shape));
    if (has_batch(target) || product(counts_of(target)) != c.elements()) {
      return n.refuse(to_string(c.dims) + " cannot be reshaped to " + to_string(shape));
    }
    (void)n.give(with_dims(c, target));
    return true;
  }
  return false;
}

}  // namespace trainyard::onnx
