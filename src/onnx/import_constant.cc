// Values that are known before a model runs: constants, sizes, and what is computed from them
// alone. Sizes may hold the batch (Extent); arithmetic on them is refused where it would have to
// know it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "src/onnx/import_table.h"

namespace trainyard::onnx {
namespace {

using A = AttributeSpec;

bool may_hold(int64_t elements) { return elements >= 0 && elements <= kFoldedElementsMax; }

/// Elements; -1 where the sizes are not possible.
int64_t product(const std::vector<int64_t>& dims) {
  const Shape shape(dims);
  return shape.fits() ? shape.elements() : -1;
}

Error too_large(const NodeImport& n) {
  return n.refuse("a constant of more than " + std::to_string(kFoldedElementsMax) + " elements");
}

/// A constant of `dims` whose element i is element from(i) of `c`.
Constant picked(const Constant& c, const std::vector<int64_t>& dims,
                const std::function<int64_t(int64_t)>& from) {
  Constant result = c;
  result.dims = extents_of(dims);
  result.initializer.clear();
  if (c.is_splat) return result;
  const int64_t count = product(dims);
  const auto pick = [&](const auto& values) {
    std::decay_t<decltype(values)> picked;
    picked.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) picked.push_back(values[static_cast<size_t>(from(i))]);
    return std::make_shared<const std::decay_t<decltype(values)>>(std::move(picked));
  };
  if (c.is_float) {
    result.floats = pick(*c.floats);
  } else {
    result.ints = pick(*c.ints);
  }
  return result;
}

std::vector<int64_t> strides_of(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

/// picked() where element [i0, i1, ...] of the result is at offset + sum(i_k * steps[k]) of `c`.
Constant strided(const Constant& c, const std::vector<int64_t>& dims, int64_t offset,
                 const std::vector<int64_t>& steps) {
  const std::vector<int64_t> strides = strides_of(dims);
  return picked(c, dims, [&](int64_t i) {
    int64_t from = offset;
    for (size_t k = 0; k < dims.size(); ++k) {
      from += i / strides[k] * steps[k];
      i %= strides[k];
    }
    return from;
  });
}

Constant with_dims(Constant c, std::vector<Extent> dims) {
  c.dims = std::move(dims);
  c.initializer.clear();
  return c;
}

/// The steps with which `from` is read as if it had the sizes `to`; nothing if it cannot be.
std::optional<std::vector<int64_t>> broadcast_steps(const std::vector<int64_t>& from,
                                                    const std::vector<int64_t>& to) {
  if (from.size() > to.size()) return std::nullopt;
  const std::vector<int64_t> strides = strides_of(from);
  std::vector<int64_t> steps(to.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) {
    const size_t k = to.size() - from.size() + i;
    if (from[i] != 1 && from[i] != to[k]) return std::nullopt;
    steps[k] = from[i] == 1 ? 0 : strides[i];
  }
  return steps;
}

std::optional<std::vector<int64_t>> broadcast_dims(const std::vector<int64_t>& a,
                                                   const std::vector<int64_t>& b) {
  std::vector<int64_t> dims(std::max(a.size(), b.size()), 1);
  for (const auto* from : {&a, &b}) {
    for (size_t i = 0; i < from->size(); ++i) {
      int64_t& d = dims[dims.size() - from->size() + i];
      const int64_t size = (*from)[i];
      if (size == d || size == 1) continue;
      if (d != 1) return std::nullopt;
      d = size;
    }
  }
  return dims;
}

// --- constants and sizes ---

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
  if (!may_hold(product(counts_of(dims)))) return too_large(n);
  value.dims = dims;
  value.is_splat = true;
  (void)n.give(std::move(value));
  return true;
}

Status import_shape(NodeImport& n) {
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
  Extent size;
  for (const Extent& e : n.dims(0)) {
    if (e.batch && size.batch) return n.refuse("a size that holds the batch twice");
    size = {size.count * e.count, size.batch || e.batch};
  }
  return n.give(int_constant({}, {size}));
}

Result<bool> fold_size(NodeImport& n) {
  Status s = import_size(n);
  if (!s.ok()) return std::move(s).error();
  return true;
}

Result<bool> fold_range(NodeImport& n) {
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

// --- moving elements ---

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
    return n.refuse("indices are no static whole numbers");
  }
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 0), std::ssize(dims)));
  const int64_t size = dims[static_cast<size_t>(axis)];
  std::vector<int64_t> at;
  const auto count = static_cast<size_t>(indices->elements());
  for (size_t i = 0; i < count; ++i) {
    const int64_t given = (*indices->ints)[indices->is_splat ? 0 : i].count;
    at.push_back(given < 0 ? given + size : given);
    if (at.back() < 0 || at.back() >= size) return n.refuse("an index that is out of range");
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
  if (!starts || !ends || starts->size() != ends->size()) return n.refuse("starts and ends differ");
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
    if (step == 0 || step == std::numeric_limits<int64_t>::min()) return n.refuse("a step of 0");
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
  bool trainable = false;
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
    dims[at] += part[at];
    part[at] = 0;
    for (size_t k = 0; k < dims.size(); ++k) {
      if (k != at && part[k] != dims[k]) return n.refuse("parts of different sizes");
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
    }
  }
  Constant result =
      is_float ? float_constant(dims, std::move(floats)) : int_constant(dims, std::move(ints));
  result.trainable = trainable;
  (void)n.give(std::move(result));
  return true;
}

Result<bool> fold_expand(NodeImport& n, const Constant& c, const std::vector<int64_t>& dims) {
  ASSIGN_OR_RETURN(const std::vector<Extent> wanted, n.extents(1, "the shape"));
  if (c.uniform() && (has_batch(wanted) || c.stored() == 1)) {
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
  if (!result) return n.refuse("to a shape that does not fit");
  if (!may_hold(product(*result))) return too_large(n);
  (void)n.give(strided(c, *result, 0, *broadcast_steps(dims, *result)));
  return true;
}

Result<bool> fold_trilu(NodeImport& n) {
  const Constant& c = *n.find_constant(0);
  const std::vector<int64_t> dims = counts_of(c.dims);
  if (has_batch(c.dims) || dims.size() < 2) return n.refuse("of an open shape, or of no matrix");
  int64_t k = 0;
  if (n.has_input(1)) {
    ASSIGN_OR_RETURN(const double number, n.number(1, "k"));
    k = static_cast<int64_t>(std::clamp(number, -1e15, 1e15));
  }
  const bool upper = n.get_int("upper", 1) != 0;
  const int64_t columns = dims.back(), rows = dims[dims.size() - 2];
  const auto keeps = [&](int64_t i) {
    const int64_t column = i % columns, row = i / columns % rows;
    return upper ? column >= row + k : column <= row + k;
  };
  Constant result = c;
  result.initializer.clear();
  result.is_splat = false;
  const auto count = static_cast<size_t>(c.elements());
  if (!may_hold(c.elements())) return too_large(n);
  const auto masked = [&](const auto& from) {
    std::decay_t<decltype(from)> values;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(keeps(static_cast<int64_t>(i))
                           ? from[c.is_splat ? 0 : i]
                           : typename std::decay_t<decltype(from)>::value_type{});
    }
    return values;
  };
  if (c.is_float) {
    result.floats = std::make_shared<const std::vector<float>>(masked(*c.floats));
  } else {
    std::vector<Extent> values = masked(*c.ints);
    for (size_t i = 0; i < count; ++i) {
      if (!keeps(static_cast<int64_t>(i))) values[i] = {0, false};
    }
    result.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
  }
  (void)n.give(std::move(result));
  return true;
}

// --- arithmetic ---

/// Extents computed with each other; nothing where the batch would have to be known.
std::optional<Extent> compute(std::string_view op, Extent a, Extent b) {
  if (a.batch || b.batch) {
    if (op == "Mul" && !(a.batch && b.batch)) return Extent{a.count * b.count, true};
    if (op == "Div" && b.count != 0 && a.batch && a.count % b.count == 0) {
      return Extent{a.count / b.count, !b.batch};
    }
    if (op == "Equal" && a.batch == b.batch) return Extent{a.count == b.count ? 1 : 0, false};
    if (op == "Equal" && (a.batch ? b : a).count < 1) return Extent{0, false};
    if ((op == "Add" || op == "Sub") && b == Extent{0, false}) return a;
    if (op == "Add" && a == Extent{0, false}) return b;
    if ((op == "Max" || op == "Min") && a == b) return a;
    // There is at least one sample.
    if (op == "Max" && (a.batch ? b : a).count <= 1) return a.batch ? a : b;
    return std::nullopt;
  }
  const int64_t x = a.count, y = b.count;
  int64_t r = 0;
  if (op == "Add") {
    if (__builtin_add_overflow(x, y, &r)) return std::nullopt;
  } else if (op == "Sub") {
    if (__builtin_sub_overflow(x, y, &r)) return std::nullopt;
  } else if (op == "Mul") {
    if (__builtin_mul_overflow(x, y, &r)) return std::nullopt;
  } else if (op == "Div" || op == "Mod") {
    if (y == 0 || (y == -1 && x == std::numeric_limits<int64_t>::min())) return std::nullopt;
    r = op == "Div" ? x / y : ((x % y) + y) % y;
  } else if (op == "Min") {
    r = std::min(x, y);
  } else if (op == "Max") {
    r = std::max(x, y);
  } else if (op == "Equal") {
    r = x == y;
  } else if (op == "Less") {
    r = x < y;
  } else if (op == "LessOrEqual") {
    r = x <= y;
  } else if (op == "Greater") {
    r = x > y;
  } else if (op == "GreaterOrEqual") {
    r = x >= y;
  } else if (op == "And") {
    r = x != 0 && y != 0;
  } else if (op == "Or") {
    r = x != 0 || y != 0;
  } else {
    return std::nullopt;
  }
  return Extent{r, false};
}

std::optional<float> compute(std::string_view op, float x, float y) {
  if (op == "Add") return x + y;
  if (op == "Sub") return x - y;
  if (op == "Mul") return x * y;
  if (op == "Div") return x / y;
  if (op == "Pow") return std::pow(x, y);
  if (op == "Min") return std::fmin(x, y);
  if (op == "Max") return std::fmax(x, y);
  return std::nullopt;
}

std::optional<int64_t> compare(std::string_view op, float x, float y) {
  if (op == "Equal") return x == y;
  if (op == "Less") return x < y;
  if (op == "LessOrEqual") return x <= y;
  if (op == "Greater") return x > y;
  if (op == "GreaterOrEqual") return x >= y;
  return std::nullopt;
}

/// Element i of a constant, of its dimensions or as the one that stands for all.
template <typename T>
const T& at(const std::vector<T>& values, const Constant& c, int64_t i) {
  return values[c.is_splat ? 0 : static_cast<size_t>(i)];
}

Result<bool> fold_reduce_ints(NodeImport& n) {
  const Constant& c = *n.find_constant(0);
  if (c.is_float || c.is_splat || c.dims.size() != 1)
    return n.refuse("of other than a list of sizes");
  Extent all{n.op() == "ReduceProd" ? 1 : 0, false};
  for (const Extent& e : *c.ints) {
    const auto next = compute(n.op() == "ReduceProd" ? "Mul" : "Add", all, e);
    if (!next) return n.refuse("of sizes that hold the batch");
    all = *next;
  }
  const std::vector<int64_t> dims(static_cast<size_t>(n.get_int("keepdims", 1) != 0 ? 1 : 0), 1);
  (void)n.give(int_constant(dims, {all}));
  return true;
}

Result<bool> fold_not(NodeImport& n) {
  Constant c = *n.find_constant(0);
  if (c.is_float) return n.refuse("of numbers");
  std::vector<Extent> values = *c.ints;
  for (Extent& e : values) e = {!e.batch && e.count == 0 ? 1 : 0, false};
  c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
  (void)n.give(std::move(c));
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
    if (named && e != Extent{}) return n.refuse("of a dimension that is not 1");
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

// Movement of a constant of an open shape, such as the initial state of an LSTM. One number stands
// for all of it, so that only its dimensions change.
Result<bool> fold_open_splat(NodeImport& n, const Constant& c) {
  constexpr int64_t kStandIn = int64_t{1} << 30;  // for the batch
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
  return n.refuse("of a constant of an open shape");
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
      if (i >= from.size()) return n.refuse("0 stands for a dimension that is not there");
      e = from[i];
    }
    if (e == Extent{-1, false}) {
      if (open) return n.refuse("two sizes are -1");
      open = i;
      continue;
    }
    if (e.count < 1) return n.refuse("a size of " + std::to_string(e.count));
    if (__builtin_mul_overflow(known.count, e.count, &known.count))
      return n.refuse("a size too large");
    known.batch = known.batch || e.batch;
  }
  if (!open) return target;
  Extent left{all.count / known.count, all.batch && !known.batch};
  // A fixed batch that is written as a number is part of `known`.
  const auto batch = n.importer().fixed_batch();
  if (all.batch && !known.batch && batch && all.count % known.count != 0 &&
      all.count * *batch % known.count == 0) {
    left = {all.count * *batch / known.count, false};
  } else if (all.count % known.count != 0 || (known.batch && !all.batch)) {
    return n.refuse(to_string(from) + " does not become " + to_string(shape));
  }
  target[*open] = left;
  return target;
}

Result<bool> fold_cast(NodeImport& n) {
  Constant c = *n.find_constant(0);
  const int64_t to = n.get_int("to", 0);
  if (!is_float_type(to) && !is_int_type(to)) return n.refuse("to " + name_of(to));
  c.initializer.clear();
  if (is_float_type(to) && !c.is_float) {
    if (has_batch(*c.ints)) return n.refuse("of a size that holds the batch to " + name_of(to));
    std::vector<float> values;
    for (const Extent& e : *c.ints) values.push_back(static_cast<float>(e.count));
    c.floats = std::make_shared<const std::vector<float>>(std::move(values));
    c.is_float = true;
  } else if (!is_float_type(to) && c.is_float) {
    std::vector<Extent> values;
    for (const float x : *c.floats) {
      if (!(std::fabs(x) < 9e18f)) return n.refuse("of a number beyond 64 bits");
      values.push_back({to == 9 ? (x != 0 ? 1 : 0) : static_cast<int64_t>(x), false});
    }
    c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
    c.is_float = c.trainable = false;
  } else if (to == 9) {
    std::vector<Extent> values = *c.ints;
    for (Extent& e : values) e = {e.batch || e.count != 0 ? 1 : 0, false};
    c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
  }
  (void)n.give(std::move(c));
  return true;
}

Result<bool> fold_where(NodeImport& n) {
  const Constant &test = *n.find_constant(0), &x = *n.find_constant(1), &y = *n.find_constant(2);
  for (const Constant* c : {&test, &x, &y}) {
    if (has_batch(c->dims)) return n.refuse("of an open shape");
  }
  if (test.is_float || x.is_float != y.is_float) return n.refuse("of different types");
  auto dims = broadcast_dims(counts_of(test.dims), counts_of(x.dims));
  if (dims) dims = broadcast_dims(*dims, counts_of(y.dims));
  if (!dims || !may_hold(product(*dims))) return n.refuse("of shapes that do not fit");
  const auto spread = [&](const Constant& c) {
    return strided(c, *dims, 0, *broadcast_steps(counts_of(c.dims), *dims));
  };
  const Constant t = spread(test), a = spread(x), b = spread(y);
  std::vector<float> floats;
  std::vector<Extent> ints;
  for (int64_t i = 0; i < product(*dims); ++i) {
    const bool first = at(*t.ints, t, i).count != 0;
    if (x.is_float) {
      floats.push_back(first ? at(*a.floats, a, i) : at(*b.floats, b, i));
    } else {
      ints.push_back(first ? at(*a.ints, a, i) : at(*b.ints, b, i));
    }
  }
  Constant result =
      x.is_float ? float_constant(*dims, std::move(floats)) : int_constant(*dims, std::move(ints));
  (void)n.give(std::move(result));
  return true;
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
      return n.refuse(to_string(c.dims) + " does not become " + to_string(shape));
    }
    (void)n.give(with_dims(c, target));
    return true;
  }
  return false;
}

Result<bool> fold_arithmetic(NodeImport& n) {
  if (n.input_count() == 1) {
    if (!n.has_input(0)) return n.refuse("has no input");
    (void)n.give(*n.find_constant(0));
    return true;
  }
  if (n.input_count() != 2 || !n.has_input(0) || !n.has_input(1)) return false;
  const Constant &x = *n.find_constant(0), &y = *n.find_constant(1);
  if (has_batch(x.dims) || has_batch(y.dims)) return n.refuse("of a constant of an open shape");
  if (x.is_float != y.is_float) return n.refuse("of different types");
  const auto dims = broadcast_dims(counts_of(x.dims), counts_of(y.dims));
  if (!dims || !may_hold(product(*dims))) return n.refuse("of shapes that do not fit");
  const Constant a = strided(x, *dims, 0, *broadcast_steps(counts_of(x.dims), *dims));
  const Constant b = strided(y, *dims, 0, *broadcast_steps(counts_of(y.dims), *dims));
  std::vector<float> floats;
  std::vector<Extent> ints;
  for (int64_t i = 0; i < product(*dims); ++i) {
    if (!x.is_float) {
      const auto r = compute(n.op(), at(*a.ints, a, i), at(*b.ints, b, i));
      if (!r) return n.refuse("of sizes that hold the batch, or beyond 64 bits");
      ints.push_back(*r);
    } else if (const auto r = compute(n.op(), at(*a.floats, a, i), at(*b.floats, b, i))) {
      floats.push_back(*r);
    } else if (const auto c = compare(n.op(), at(*a.floats, a, i), at(*b.floats, b, i))) {
      ints.push_back({*c, false});
    } else {
      return n.refuse("of numbers");
    }
  }
  const bool is_float = x.is_float && !compare(n.op(), 0.0f, 0.0f);
  Constant result =
      is_float ? float_constant(*dims, std::move(floats)) : int_constant(*dims, std::move(ints));
  result.trainable = result.is_float && (x.trainable || y.trainable);
  (void)n.give(std::move(result));
  return true;
}

Result<bool> fold_unary(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  Constant c = *n.find_constant(0);
  const std::string_view op = n.op();
  if (!c.is_float) {
    if (op != "Neg" && op != "Abs") return n.refuse("of whole numbers");
    std::vector<Extent> values = *c.ints;
    for (Extent& e : values) {
      if (e.batch || e.count == std::numeric_limits<int64_t>::min()) return n.refuse("of a size");
      e.count = op == "Neg" || e.count < 0 ? -e.count : e.count;
    }
    c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
    (void)n.give(std::move(c));
    return true;
  }
  float (*f)(float) = op == "Neg"          ? +[](float x) { return -x; }
                      : op == "Abs"        ? +[](float x) { return std::fabs(x); }
                      : op == "Sqrt"       ? +[](float x) { return std::sqrt(x); }
                      : op == "Exp"        ? +[](float x) { return std::exp(x); }
                      : op == "Log"        ? +[](float x) { return std::log(x); }
                      : op == "Reciprocal" ? +[](float x) { return 1 / x; }
                      : op == "Floor"      ? +[](float x) { return std::floor(x); }
                      : op == "Ceil"       ? +[](float x) { return std::ceil(x); }
                                           : nullptr;
  if (f == nullptr) return false;
  std::vector<float> values = *c.floats;
  std::ranges::transform(values, values.begin(), f);
  c.floats = std::make_shared<const std::vector<float>>(std::move(values));
  c.initializer.clear();
  (void)n.give(std::move(c));
  return true;
}

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
       .limits = "fmod: 1; other than whole constants",
       .fold = fold_arithmetic},
      {.op = "ReduceProd",
       .becomes = kFolded,
       .limits = "other than lists of sizes",
       .attributes = {{"axes", A::kInts}, {"keepdims"}, {"noop_with_empty_axes"}},
       .fold = fold_reduce_ints}};
  for (const std::string_view op :
       {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or"}) {
    rows.push_back({.op = op,
                    .since = op.ends_with("OrEqual") ? 12 : 1,
                    .becomes = kFolded,
                    .limits = kConstants,
                    .fold = fold_arithmetic});
  }
  for (const std::string_view op : {"Floor", "Ceil"}) {
    rows.push_back({.op = op, .becomes = kFolded, .limits = kConstants, .fold = fold_unary});
  }
  return rows;
}

}  // namespace trainyard::onnx
