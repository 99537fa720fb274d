// Operations on constants that move elements and do not change their values.
#include <algorithm>
#include <limits>
#include <numeric>

#include "src/onnx/constant_elements.h"

namespace trainyard::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Extents = std::vector<Extent>;

Result<bool> fold_transpose(NodeImport& n, const Constant& c) {
  Ints perm(c.dims.size());
  std::iota(perm.rbegin(), perm.rend(), 0);
  perm = n.get_ints("perm", perm);
  ASSIGN_OR_RETURN(perm, n.axes(perm, std::ssize(c.dims)));
  if (perm.size() != c.dims.size()) return n.refuse("perm does not name every dimension");
  const Ints strides = strides_of(stored_sizes(c.dims));
  Extents turned;
  Ints steps;
  for (const int64_t p : perm) {
    turned.push_back(c.dims[static_cast<size_t>(p)]);
    steps.push_back(strides[static_cast<size_t>(p)]);
  }
  Constant result = strided(c, turned, 0, steps);
  if (perm == Ints{1, 0}) {
    result.initializer = c.initializer;
    result.transposed = !c.transposed;
  }
  (void)n.give(std::move(result));
  return true;
}

/// Returns true if the indices, of which `rows` are those stored, have a number twice.
bool takes_twice(const Constant& indices, Ints rows) {
  if (indices.is_splat) return product(stored_sizes(indices.dims)) > 1;
  std::ranges::sort(rows);
  return std::ranges::adjacent_find(rows) != rows.end();
}

// A row of a parameter that is taken twice must stay one row, so layers take it.
Result<bool> fold_gather(NodeImport& n, const Constant& c) {
  const Constant& indices = *n.find_constant(1);
  if (indices.is_float) return n.refuse("indices are not whole numbers");
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 0), std::ssize(c.dims)));
  const auto at_axis = static_cast<size_t>(axis);
  ASSIGN_OR_RETURN(const Ints rows, positions_of(n, indices, c.dims[at_axis]));
  if (c.trainable && takes_twice(indices, rows)) return false;
  Extents dims(c.dims.begin(), c.dims.begin() + axis);
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  dims.insert(dims.end(), c.dims.begin() + axis + 1, c.dims.end());
  if (!may_hold(product(stored_sizes(dims)))) return too_large(n);
  const Ints sizes = stored_sizes(c.dims);
  const int64_t size = sizes[at_axis], inner = strides_of(sizes)[at_axis];
  const int64_t count = product(stored_sizes(indices.dims));
  (void)n.give(picked(c, std::move(dims), [&](int64_t i) {
    const int64_t outer = i / (inner * count), row = i / inner % count;
    return (outer * size + at(rows, indices, row)) * inner + i % inner;
  }));
  return true;
}

struct Range {
  int64_t start = 0, step = 1, count = 0;
};

/// Returns the elements that a Slice takes of a dimension of `size` elements.
Range range_of(int64_t start, int64_t end, int64_t step, int64_t size) {
  const auto from_front = [size](int64_t p) { return p < 0 ? p + size : p; };
  start = from_front(start);
  end = from_front(end);
  start = step > 0 ? std::clamp<int64_t>(start, 0, size) : std::clamp<int64_t>(start, 0, size - 1);
  end = step > 0 ? std::clamp<int64_t>(end, 0, size) : std::clamp<int64_t>(end, -1, size - 1);
  const int64_t span = step > 0 ? end - start : start - end;
  const int64_t stride = std::min<int64_t>(step > 0 ? step : -step, size + 1);
  return {start, step > 0 ? stride : -stride, span <= 0 ? 0 : (span + stride - 1) / stride};
}

Result<bool> fold_slice(NodeImport& n, const Constant& c) {
  ASSIGN_OR_RETURN(const SliceArguments a, slice_arguments(n, std::ssize(c.dims)));
  Extents dims = c.dims;
  const Ints sizes = stored_sizes(c.dims);
  Ints steps = strides_of(sizes);
  int64_t offset = 0;
  for (size_t i = 0; i < a.axes.size(); ++i) {
    const auto axis = static_cast<size_t>(a.axes[i]);
    const int64_t step = a.steps[i];
    if (dims[axis].count == 0) continue;
    if (step == 0 || step == std::numeric_limits<int64_t>::min()) return n.refuse("a step is 0");
    if (a.takes_all(i, dims[axis])) continue;
    if (dims[axis].batch || a.ends[i].batch) return n.refuse("cuts the batch");
    const Range r = range_of(a.starts[i], a.ends[i].count, step, sizes[axis]);
    dims[axis] = {r.count, false};
    offset += r.start * steps[axis];
    steps[axis] *= r.step;
  }
  (void)n.give(strided(c, dims, offset, steps));
  return true;
}

/// Checks that the parts of a Concat have the same type and sizes, except along the axis. Returns
/// the sizes of the whole; nothing if the parts have different types.
Result<std::optional<Extents>> joined_dims(NodeImport& n, size_t axis) {
  Extents dims = n.dims(0);
  if (dims[axis].batch) return n.refuse("joins samples");
  dims[axis].count = 0;
  for (size_t i = 0; i < n.input_count(); ++i) {
    if (!n.has_input(i)) return n.refuse("input " + std::to_string(i) + " is left out");
    Extents part = n.dims(i);
    const bool has_type = n.find_constant(i)->is_float == n.find_constant(0)->is_float;
    if (!has_type || part.size() != dims.size()) return std::optional<Extents>();
    if (part[axis].batch) return n.refuse("joins samples");
    dims[axis].count += part[axis].count;
    part[axis].count = dims[axis].count;
    if (part != dims) return n.refuse("the parts have different sizes");
  }
  return std::optional(std::move(dims));
}

Result<bool> fold_concat(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("input 0 is left out");
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 1), std::ssize(n.dims(0))));
  ASSIGN_OR_RETURN(const std::optional<Extents> dims, joined_dims(n, static_cast<size_t>(axis)));
  if (!dims) return false;
  const Ints sizes = stored_sizes(*dims);
  if (!may_hold(product(sizes))) return too_large(n);
  int64_t outer = 1;
  for (size_t i = 0; i < static_cast<size_t>(axis); ++i) outer *= sizes[i];
  Constant result;
  result.dims = *dims;
  result.is_float = n.find_constant(0)->is_float;
  std::vector<Extent> ints;
  std::vector<float> floats;
  std::vector<Origin> origins;
  bool has_origins = false;
  for (size_t i = 0; i < n.input_count(); ++i) {
    result.trainable = result.trainable || n.find_constant(i)->trainable;
    has_origins = has_origins || n.find_constant(i)->origins != nullptr;
  }
  for (int64_t row = 0; row < outer; ++row) {
    for (size_t i = 0; i < n.input_count(); ++i) {
      const Constant* c = n.find_constant(i);
      const int64_t width = product(stored_sizes(c->dims)) / outer;
      const auto append = [&](auto& into, const auto& from) {
        for (int64_t k = row * width; k < (row + 1) * width; ++k) into.push_back(at(from, *c, k));
      };
      if (result.is_float) {
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
  if (result.is_float) {
    result.floats = std::make_shared<const std::vector<float>>(std::move(floats));
  } else {
    result.ints = std::make_shared<const std::vector<Extent>>(std::move(ints));
  }
  if (has_origins) result.origins = std::make_shared<const std::vector<Origin>>(std::move(origins));
  (void)n.give(std::move(result));
  return true;
}

/// Returns a fixed constant of equal elements as one that stores a single element.
Constant splat_of(const Constant& c, Extents dims) {
  Constant splat = with_dims(c, std::move(dims));
  splat.is_splat = true;
  if (c.is_float) {
    splat.floats = std::make_shared<const std::vector<float>>(1, c.floats->front());
  } else {
    splat.ints = std::make_shared<const std::vector<Extent>>(1, c.ints->front());
  }
  return splat;
}

// A repeated parameter must stay one parameter, so an Expand layer repeats it and nothing is
// folded.
Result<bool> fold_expand(NodeImport& n, const Constant& c) {
  ASSIGN_OR_RETURN(const Extents wanted, n.extents(1, "the shape"));
  const auto dims = broadcast_dims(c.dims, wanted);
  if (!dims) return n.refuse(to_string(c.dims) + " does not broadcast to " + to_string(wanted));
  if (!may_hold(product(stored_sizes(*dims)))) return too_large(n);
  if (c.trainable && *dims != c.dims && product(counts_of(*dims)) != c.stored()) return false;
  if (c.trainable && has_batch(*dims)) return false;
  if (c.uniform() && !c.trainable) {
    (void)n.give(splat_of(c, *dims));
  } else {
    (void)n.give(spread(c, *dims));
  }
  return true;
}

// Tile repeats whole dimensions.
Result<bool> fold_tile(NodeImport& n, const Constant& c) {
  ASSIGN_OR_RETURN(const Extents repeats, n.extents(1, "repeats"));
  if (repeats.size() != c.dims.size()) return n.refuse("repeats does not name every dimension");
  if (c.trainable) return false;
  Extents dims = c.dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].batch && repeats[i] != Extent{}) return n.refuse("repeats the batch");
    dims[i].batch = dims[i].batch || repeats[i].batch;
    if (__builtin_mul_overflow(dims[i].count, repeats[i].count, &dims[i].count)) {
      return too_large(n);
    }
  }
  const Ints sizes = stored_sizes(c.dims), all = stored_sizes(dims);
  if (!may_hold(product(all))) return too_large(n);
  const Ints strides = strides_of(sizes), steps = strides_of(all);
  (void)n.give(picked(c, std::move(dims), [&](int64_t i) {
    int64_t from = 0;
    for (size_t k = 0; k < sizes.size(); ++k) from += i / steps[k] % all[k] % sizes[k] * strides[k];
    return from;
  }));
  return true;
}

Result<bool> fold_squeeze(NodeImport& n, const Constant& c) {
  ASSIGN_OR_RETURN(const auto given, n.ints_of("axes", 1));
  const auto rank = std::ssize(c.dims);
  ASSIGN_OR_RETURN(const Ints axes, n.axes(given.value_or(Ints()), rank));
  Extents dims;
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
  ASSIGN_OR_RETURN(const Ints axes, n.axes(*given, rank));
  Extents dims = c.dims;
  Ints ascending = axes;
  std::ranges::sort(ascending);
  for (const int64_t axis : ascending) dims.insert(dims.begin() + axis, Extent{});
  (void)n.give(with_dims(c, std::move(dims)));
  return true;
}

/// Returns the number of elements in front of each dimension that includes the batch.
Ints places_of_batch(const Extents& dims) {
  Ints places;
  int64_t before = 1;
  for (const Extent& e : dims) {
    if (e.batch) places.push_back(before);
    before *= e.count;
  }
  return places;
}

// The elements of a sample must stay together, and in the same place among the dimensions.
Result<bool> fold_reshape(NodeImport& n, const Constant& c, const Extents& target) {
  const bool keeps_samples = c.is_splat
                                 ? places_of_batch(c.dims).size() == places_of_batch(target).size()
                                 : places_of_batch(c.dims) == places_of_batch(target);
  if (!keeps_samples || product(counts_of(c.dims)) != product(counts_of(target))) {
    return n.refuse(to_string(c.dims) + " cannot be reshaped to " + to_string(target));
  }
  (void)n.give(with_dims(c, target));
  return true;
}

Result<bool> fold_flatten(NodeImport& n, const Constant& c) {
  const auto rank = std::ssize(c.dims);
  int64_t axis = n.get_int("axis", 1);
  if (axis < 0) axis += rank;
  ASSIGN_OR_RETURN(axis, n.axis(axis, rank + 1));
  Extents target(2);
  for (int64_t i = 0; i < rank; ++i) {
    const Extent& e = c.dims[static_cast<size_t>(i)];
    Extent& into = target[i < axis ? 0 : 1];
    into = {into.count * e.count, into.batch || e.batch};
  }
  return fold_reshape(n, c, target);
}

}  // namespace

bool SliceArguments::takes_all(size_t i, const Extent& size) const {
  // From this end on, a slice ends where the dimension ends, whatever its size.
  constexpr int64_t kEndMin = std::numeric_limits<int32_t>::max();
  const Extent& end = ends[i];
  const bool to_end =
      end == size || (!end.batch && !size.batch && end.count >= size.count) || end.count >= kEndMin;
  return starts[i] == 0 && steps[i] == 1 && to_end;
}

Result<SliceArguments> slice_arguments(NodeImport& n, int64_t rank) {
  SliceArguments a;
  ASSIGN_OR_RETURN(const auto starts, n.ints_of("starts", 1));
  ASSIGN_OR_RETURN(const auto axes, n.ints_of("axes", 3));
  a.ends = extents_of(n.get_ints("ends"));
  if (n.has_input(2)) {
    ASSIGN_OR_RETURN(a.ends, n.extents(2, "ends"));
  }
  if (!starts || starts->size() != a.ends.size())
    return n.refuse("starts and ends differ in length");
  a.starts = *starts;
  Ints all(starts->size());
  std::iota(all.begin(), all.end(), 0);
  ASSIGN_OR_RETURN(a.axes, n.axes(axes.value_or(all), rank));
  a.steps.assign(starts->size(), 1);
  if (n.has_input(4)) {
    ASSIGN_OR_RETURN(a.steps, n.ints(4, "steps"));
  }
  if (a.axes.size() != starts->size() || a.steps.size() != starts->size()) {
    return n.refuse("starts, ends, axes and steps have different lengths");
  }
  return a;
}

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
  // A file with a fixed batch gives all sizes as plain numbers.
  if (all.batch && !known.batch && n.fixed_batch()) {
    all = {all.count * *n.fixed_batch(), false};
  }
  if (all.count % known.count != 0 || (known.batch && !all.batch)) {
    return n.refuse(to_string(from) + " cannot be reshaped to " + to_string(shape));
  }
  const Extent left{all.count / known.count, all.batch && !known.batch};
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
  if (op == "Transpose") return fold_transpose(n, c);
  if (op == "Gather") return n.has_input(1) ? fold_gather(n, c) : n.refuse("has no indices");
  if (op == "Slice") return fold_slice(n, c);
  if (op == "Expand") return fold_expand(n, c);
  if (op == "Tile") return fold_tile(n, c);
  if (op == "Flatten") return fold_flatten(n, c);
  if (op == "Reshape") {
    ASSIGN_OR_RETURN(const Extents shape, n.extents(1, "the shape"));
    ASSIGN_OR_RETURN(const Extents target, reshape_target(n, c.dims, shape));
    return fold_reshape(n, c, target);
  }
  return false;
}

}  // namespace trainyard::onnx
