// Operations on constants that combine the elements of a dimension.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/onnx/constant_elements.h"

namespace trainyard::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Extents = std::vector<Extent>;

// The limit of the multiplications of a product of constants.
constexpr int64_t kFoldedProductMax = int64_t{1} << 30;

/// Returns, for each element of `sizes`, the element of the result of a reduction to which it
/// belongs. `kept` are the sizes with 1 in place of those that are reduced.
Ints targets_of(const Ints& sizes, const Ints& kept) {
  const Ints from = strides_of(sizes), to = strides_of(kept);
  Ints targets(static_cast<size_t>(product(sizes)), 0);
  for (size_t i = 0; i < targets.size(); ++i) {
    for (size_t k = 0; k < sizes.size(); ++k) {
      if (kept[k] != 1) targets[i] += static_cast<int64_t>(i) / from[k] % sizes[k] * to[k];
    }
  }
  return targets;
}

/// Returns the sum, or what else the operation computes, of each group of elements.
std::optional<std::vector<double>> reduced(std::string_view op, const std::vector<double>& values,
                                           const Ints& targets, size_t groups) {
  const bool is_max = op == "ReduceMax", is_min = op == "ReduceMin";
  const double infinity = std::numeric_limits<double>::infinity();
  const double start = is_max ? -infinity : is_min ? infinity : op == "ReduceProd" ? 1 : 0;
  std::vector<double> results(groups, start);
  for (size_t i = 0; i < values.size(); ++i) {
    double& r = results[static_cast<size_t>(targets[i])];
    const double x = values[i];
    if (op == "ReduceSum" || op == "ReduceMean") {
      r += x;
    } else if (op == "ReduceProd") {
      r *= x;
    } else if (op == "ReduceSumSquare" || op == "ReduceL2") {
      r += x * x;
    } else if (op == "ReduceL1") {
      r += std::fabs(x);
    } else if (is_max || is_min) {
      r = is_max ? std::fmax(r, x) : std::fmin(r, x);
    } else {
      return std::nullopt;
    }
  }
  for (double& r : results) {
    if (op == "ReduceMean") {
      r *= static_cast<double>(groups) / static_cast<double>(values.size());
    } else if (op == "ReduceL2") {
      r = std::sqrt(r);
    }
  }
  return results;
}

/// Multiplies or adds a list of sizes, which may include the batch.
Result<bool> fold_size_list(NodeImport& n, const Constant& c) {
  Extent all{n.op() == "ReduceProd" ? 1 : 0, false};
  for (const Extent& e : *c.ints) {
    const auto next = n.op() == "ReduceProd"  ? size_arithmetic("Mul", all, e)
                      : n.op() == "ReduceSum" ? size_arithmetic("Add", all, e)
                                              : std::nullopt;
    if (!next) return n.refuse("sizes that include the batch are not supported");
    all = *next;
  }
  const Ints dims(static_cast<size_t>(n.get_int("keepdims", 1) != 0 ? 1 : 0), 1);
  (void)n.give(int_constant(dims, {all}));
  return true;
}

struct Reduction {
  Extents kept;  // the dimensions, with 1 in place of those that are reduced
  Extents dims;  // of the result
};

Result<Reduction> reduction_of(const NodeImport& n, const Constant& c) {
  ASSIGN_OR_RETURN(const auto given, n.ints_of("axes", 1));
  Ints all(c.dims.size());
  std::iota(all.begin(), all.end(), 0);
  const bool none = !given || given->empty();
  if (none && n.get_int("noop_with_empty_axes", 0) != 0) all.clear();
  ASSIGN_OR_RETURN(const Ints axes, n.axes(none ? all : *given, std::ssize(c.dims)));
  Reduction r;
  r.kept = c.dims;
  for (const int64_t axis : axes) {
    Extent& e = r.kept[static_cast<size_t>(axis)];
    if (e.batch) return n.refuse("reduces over the batch");
    e = {};
  }
  for (size_t i = 0; i < c.dims.size(); ++i) {
    const bool gone = std::ranges::find(axes, static_cast<int64_t>(i)) != axes.end();
    if (!gone || n.get_int("keepdims", 1) != 0) r.dims.push_back(r.kept[i]);
  }
  return r;
}

std::vector<double> doubles_of(const Constant& c) {
  std::vector<double> values;
  for (int64_t i = 0; i < product(stored_sizes(c.dims)); ++i) {
    values.push_back(c.is_float ? static_cast<double>(at(*c.floats, c, i))
                                : static_cast<double>(at(*c.ints, c, i).count));
  }
  return values;
}

/// Returns a constant of the type of `like`.
Constant constant_of(const Constant& like, Extents dims, const std::vector<double>& values) {
  if (like.is_float) {
    return with_dims(float_constant({}, std::vector<float>(values.begin(), values.end())),
                     std::move(dims));
  }
  Extents ints;
  for (const double x : values) ints.push_back({static_cast<int64_t>(x), false});
  return with_dims(int_constant({}, std::move(ints)), std::move(dims));
}

}  // namespace

Result<bool> fold_reduce(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  const Constant& c = *n.find_constant(0);
  if (!c.is_float && has_batch(*c.ints)) {
    if (c.is_splat || c.dims.size() != 1) return n.refuse("expected a list of sizes");
    return fold_size_list(n, c);
  }
  if (c.empty()) return n.refuse("has no elements");
  if (!may_hold(product(stored_sizes(c.dims)))) return too_large(n);
  ASSIGN_OR_RETURN(Reduction r, reduction_of(n, c));
  const Ints kept = stored_sizes(r.kept);
  const auto results = reduced(n.op(), doubles_of(c), targets_of(stored_sizes(c.dims), kept),
                               static_cast<size_t>(product(kept)));
  if (!results) return false;
  Constant result = constant_of(c, std::move(r.dims), *results);
  result.trainable = c.trainable;
  (void)n.give(std::move(result));
  return true;
}

namespace {

Result<bool> fold_cum_sum(NodeImport& n) {
  if (!n.has_input(0)) return n.refuse("has no input");
  const Constant& c = *n.find_constant(0);
  if (!c.is_float && has_batch(*c.ints)) {
    return n.refuse("sizes that include the batch are not supported");
  }
  ASSIGN_OR_RETURN(const double given, n.number(1, "axis"));
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(static_cast<int64_t>(given), std::ssize(c.dims)));
  const Ints sizes = stored_sizes(c.dims);
  if (!may_hold(product(sizes))) return too_large(n);
  const auto along = static_cast<size_t>(axis);
  const int64_t step = strides_of(sizes)[along], size = sizes[along];
  const bool exclusive = n.get_int("exclusive", 0) != 0, reverse = n.get_int("reverse", 0) != 0;
  if (reverse && c.dims[along].batch) return n.refuse("sums over the batch");
  const std::vector<double> values = doubles_of(c);
  std::vector<double> sums(values.size());
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    const int64_t place = i / step % size;
    if (place != 0) continue;  // the first of a row, whose elements follow at distance `step`
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) {
      const auto at = static_cast<size_t>(i + (reverse ? size - 1 - k : k) * step);
      sums[at] = exclusive ? sum : sum + values[at];
      sum += values[at];
    }
  }
  (void)n.give(constant_of(c, c.dims, sums));
  return true;
}

}  // namespace

// Multiplies fixed matrices, such as the positions and frequencies of rotary embeddings. Layers
// multiply parameters.
Result<bool> fold_mat_mul(NodeImport& n) {
  if (!n.has_input(0) || !n.has_input(1)) return n.refuse("needs two inputs");
  const Constant &x = *n.find_constant(0), &y = *n.find_constant(1);
  const size_t rank = x.dims.size();
  if (x.trainable || y.trainable || !x.is_float || !y.is_float || rank < 2 || y.dims.size() < 2) {
    return false;
  }
  const Extent inner = x.dims.back();
  if (inner.batch || inner != y.dims[y.dims.size() - 2]) return false;
  const auto outer =
      broadcast_dims({x.dims.begin(), x.dims.end() - 2}, {y.dims.begin(), y.dims.end() - 2});
  if (!outer) return n.refuse("the shapes do not broadcast");
  Extents left = *outer, right = *outer, dims = *outer;
  left.insert(left.end(), {x.dims[rank - 2], inner});
  right.insert(right.end(), {inner, y.dims.back()});
  dims.insert(dims.end(), {x.dims[rank - 2], y.dims.back()});
  const int64_t count = product(stored_sizes(dims));
  if (!may_hold(count) || !may_hold(product(stored_sizes(left))) ||
      !may_hold(product(stored_sizes(right))) ||
      count * std::max<int64_t>(inner.count, 1) > kFoldedProductMax) {
    return too_large(n);
  }
  const Constant a = spread(x, left), b = spread(y, right);
  const int64_t rows = stored_sizes(dims)[dims.size() - 2], columns = stored_sizes(dims).back();
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t matrix = i / (rows * columns), row = i / columns % rows, column = i % columns;
    double sum = 0;
    for (int64_t k = 0; k < inner.count; ++k) {
      sum += static_cast<double>(at(*a.floats, a, (matrix * rows + row) * inner.count + k)) *
             static_cast<double>(at(*b.floats, b, (matrix * inner.count + k) * columns + column));
    }
    values.push_back(static_cast<float>(sum));
  }
  (void)n.give(with_dims(float_constant({}, std::move(values)), std::move(dims)));
  return true;
}

std::vector<ImportRow> reduction_imports() {
  return {{.op = "CumSum",
           .since = 11,
           .becomes = "its value",
           .limits = "inputs that depend on the model's input",
           .attributes = {{"exclusive"}, {"reverse"}},
           .fold = fold_cum_sum},
          {.op = "ReduceProd",
           .becomes = "its value",
           .limits = "inputs that depend on the model's input",
           .attributes = {{"axes", AttributeSpec::kInts}, {"keepdims"}, {"noop_with_empty_axes"}},
           .fold = fold_reduce}};
}

}  // namespace trainyard::onnx
