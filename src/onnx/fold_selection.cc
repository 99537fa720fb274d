// Operations on constants that select elements by indices, or put elements where indices say.
#include <algorithm>
#include <iterator>

#include "src/onnx/constant_elements.h"

namespace trainyard::onnx {
namespace {

using A = AttributeSpec;
using Ints = std::vector<int64_t>;
using Extents = std::vector<Extent>;

int64_t size_of(const Extents& dims) { return product(stored_sizes(dims)); }

Status check_inputs(const NodeImport& n, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!n.has_input(i)) return n.refuse("needs " + std::to_string(count) + " inputs");
  }
  return {};
}

// --- GatherND and ScatterND: the last dimension of the indices has the positions in the first
// dimensions of the data ---

struct Tuples {
  Extents outer;      // the dimensions of the indices without the last
  Extents inner;      // the dimensions of the data behind those that a tuple selects from
  Ints begins;        // for each tuple, the first of its elements in the data
  int64_t width = 1;  // elements of the data for each tuple
};

Result<Tuples> tuples_of(const NodeImport& n, const Constant& data, const Constant& indices) {
  const auto rank = std::ssize(data.dims);
  const bool has_length = !indices.dims.empty() && !indices.dims.back().batch;
  const int64_t length = has_length ? indices.dims.back().count : 0;
  if (length < 1 || length > rank) return n.refuse("indices have tuples of a wrong length");
  Tuples t;
  t.outer.assign(indices.dims.begin(), indices.dims.end() - 1);
  t.inner.assign(data.dims.begin() + length, data.dims.end());
  t.width = size_of(t.inner);
  const Ints sizes = stored_sizes(data.dims), strides = strides_of(sizes);
  t.begins.assign(static_cast<size_t>(size_of(t.outer)), 0);
  for (int64_t k = 0; k < length; ++k) {
    const auto dim = static_cast<size_t>(k);
    Constant column = indices;  // the positions in dimension k
    column.dims = t.outer;
    if (!indices.is_splat) {
      column = picked(indices, t.outer, [length, k](int64_t i) { return i * length + k; });
    }
    ASSIGN_OR_RETURN(const Ints positions, positions_of(n, column, data.dims[dim]));
    for (size_t i = 0; i < t.begins.size(); ++i) {
      t.begins[i] += at(positions, column, static_cast<int64_t>(i)) * strides[dim];
    }
  }
  return t;
}

bool has_duplicates(Ints numbers) {
  std::ranges::sort(numbers);
  return std::ranges::adjacent_find(numbers) != numbers.end();
}

Result<bool> fold_gather_nd(NodeImport& n) {
  if (Status s = check_inputs(n, 2); !s.ok()) return std::move(s).error();
  if (n.get_int("batch_dims", 0) != 0) return n.refuse("batch_dims is not supported");
  const Constant& data = *n.find_constant(0);
  ASSIGN_OR_RETURN(const Tuples t, tuples_of(n, data, *n.find_constant(1)));
  if (data.trainable && has_duplicates(t.begins)) return false;  // as for Gather
  Extents dims = t.outer;
  dims.insert(dims.end(), t.inner.begin(), t.inner.end());
  if (!may_hold(size_of(dims))) return too_large(n);
  (void)n.give(picked(data, std::move(dims), [&](int64_t i) {
    return t.begins[static_cast<size_t>(i / t.width)] + i % t.width;
  }));
  return true;
}

/// Returns `data` with element targets[i] replaced by element i of `updates`.
Result<Constant> replaced(const NodeImport& n, const Constant& data, const Constant& updates,
                          const Ints& targets) {
  const std::string reduction = n.get_text("reduction", "none");
  if (reduction != "none") return n.refuse("reduction " + reduction + " is not supported");
  if (data.is_float != updates.is_float) return n.refuse("the operands have different types");
  if (data.origins || updates.origins) return n.refuse("parameters are not supported");
  if (size_of(updates.dims) != std::ssize(targets)) {
    return n.refuse("the updates do not have the shape of the indices");
  }
  Constant result = data;
  result.initializer.clear();
  result.trainable = data.trainable || updates.trainable;
  result.is_splat = false;
  const auto put = [&](const auto& from, const auto& into) {
    std::decay_t<decltype(from)> values(static_cast<size_t>(size_of(data.dims)));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = at(from, data, static_cast<int64_t>(i));
    }
    for (size_t i = 0; i < targets.size(); ++i) {
      values[static_cast<size_t>(targets[i])] = at(into, updates, static_cast<int64_t>(i));
    }
    return std::make_shared<const std::decay_t<decltype(from)>>(std::move(values));
  };
  if (data.is_float) {
    result.floats = put(*data.floats, *updates.floats);
  } else {
    result.ints = put(*data.ints, *updates.ints);
  }
  return result;
}

Result<bool> fold_scatter_nd(NodeImport& n) {
  if (Status s = check_inputs(n, 3); !s.ok()) return std::move(s).error();
  const Constant& data = *n.find_constant(0);
  if (!may_hold(size_of(data.dims))) return too_large(n);
  ASSIGN_OR_RETURN(const Tuples t, tuples_of(n, data, *n.find_constant(1)));
  if (!may_hold(product({std::ssize(t.begins), t.width}))) return too_large(n);
  Ints targets;
  for (const int64_t begin : t.begins) {
    for (int64_t i = 0; i < t.width; ++i) targets.push_back(begin + i);
  }
  ASSIGN_OR_RETURN(Constant result, replaced(n, data, *n.find_constant(2), targets));
  (void)n.give(std::move(result));
  return true;
}

// --- GatherElements and ScatterElements: each index replaces one coordinate ---

Result<Ints> elements_of(const NodeImport& n, const Constant& data, const Constant& indices) {
  const auto rank = std::ssize(data.dims);
  if (std::ssize(indices.dims) != rank) return n.refuse("indices differ in rank from the data");
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 0), rank));
  const auto along = static_cast<size_t>(axis);
  ASSIGN_OR_RETURN(const Ints positions, positions_of(n, indices, data.dims[along]));
  const Ints sizes = stored_sizes(indices.dims), steps = strides_of(sizes);
  const Ints data_sizes = stored_sizes(data.dims), strides = strides_of(data_sizes);
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (k != along && sizes[k] > data_sizes[k]) return n.refuse("indices exceed the data");
  }
  Ints elements;
  for (int64_t i = 0; i < product(sizes); ++i) {
    int64_t from = at(positions, indices, i) * strides[along];
    for (size_t k = 0; k < sizes.size(); ++k) {
      if (k != along) from += i / steps[k] % sizes[k] * strides[k];
    }
    elements.push_back(from);
  }
  return elements;
}

Result<bool> fold_gather_elements(NodeImport& n) {
  if (Status s = check_inputs(n, 2); !s.ok()) return std::move(s).error();
  const Constant &data = *n.find_constant(0), &indices = *n.find_constant(1);
  if (!may_hold(size_of(indices.dims))) return too_large(n);
  ASSIGN_OR_RETURN(const Ints from, elements_of(n, data, indices));
  (void)n.give(picked(data, indices.dims, [&](int64_t i) { return from[static_cast<size_t>(i)]; }));
  return true;
}

Result<bool> fold_scatter_elements(NodeImport& n) {
  if (Status s = check_inputs(n, 3); !s.ok()) return std::move(s).error();
  const Constant &data = *n.find_constant(0), &indices = *n.find_constant(1);
  if (!may_hold(size_of(data.dims))) return too_large(n);
  ASSIGN_OR_RETURN(const Ints targets, elements_of(n, data, indices));
  ASSIGN_OR_RETURN(Constant result, replaced(n, data, *n.find_constant(2), targets));
  (void)n.give(std::move(result));
  return true;
}

// --- indices from elements, and the reverse ---

Result<bool> fold_one_hot(NodeImport& n) {
  if (Status s = check_inputs(n, 3); !s.ok()) return std::move(s).error();
  const Constant &indices = *n.find_constant(0), &values = *n.find_constant(2);
  ASSIGN_OR_RETURN(const double given, n.number(1, "depth"));
  if (!(given >= 1 && given <= static_cast<double>(kFoldedElementsMax))) return too_large(n);
  const auto depth = static_cast<int64_t>(given);
  if (indices.is_float || has_batch(*indices.ints) || values.dims.size() != 1 ||
      values.dims[0] != Extent{2, false}) {
    return n.refuse("expected whole numbers, and two values");
  }
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", -1), std::ssize(indices.dims) + 1));
  Extents dims = indices.dims;
  dims.insert(dims.begin() + axis, Extent{depth, false});
  const Ints sizes = stored_sizes(dims);
  if (!may_hold(product(sizes))) return too_large(n);
  const int64_t inner = strides_of(sizes)[static_cast<size_t>(axis)];
  Constant both = values;
  (void)n.give(picked(both, std::move(dims), [&](int64_t i) {
    const int64_t hot = at(*indices.ints, indices, i / (inner * depth) * inner + i % inner).count;
    return int64_t{(hot < 0 ? hot + depth : hot) == i / inner % depth};
  }));
  return true;
}

Result<bool> fold_non_zero(NodeImport& n) {
  if (Status s = check_inputs(n, 1); !s.ok()) return std::move(s).error();
  const Constant& c = *n.find_constant(0);
  if (has_batch(c.dims)) return n.refuse("a shape that includes the batch is not supported");
  Ints found;
  for (int64_t i = 0; i < c.elements(); ++i) {
    const bool is_zero =
        c.is_float ? at(*c.floats, c, i) == 0 : at(*c.ints, c, i) == Extent{0, false};
    if (!is_zero) found.push_back(i);
  }
  const Ints sizes = counts_of(c.dims), strides = strides_of(sizes);
  if (!may_hold(product({std::ssize(sizes), std::ssize(found)}))) return too_large(n);
  Extents positions;
  for (size_t k = 0; k < sizes.size(); ++k) {
    for (const int64_t i : found) positions.push_back({i / strides[k] % sizes[k], false});
  }
  (void)n.give(int_constant({std::ssize(sizes), std::ssize(found)}, std::move(positions)));
  return true;
}

}  // namespace

std::vector<ImportRow> selection_imports() {
  constexpr std::string_view kConstants = "inputs that depend on the model's input";
  std::vector<ImportRow> rows = {
      {.op = "GatherND",
       .since = 11,
       .limits = "indices that depend on the model's input; batch_dims; of a layer's output by "
                 "several dimensions",
       .attributes = {{"batch_dims"}},
       .import = import_gather_nd,
       .fold = fold_gather_nd},
      {.op = "GatherElements",
       .since = 11,
       .limits = kConstants,
       .attributes = {{"axis"}},
       .fold = fold_gather_elements},
      {.op = "ScatterND",
       .since = 11,
       .limits = "inputs that depend on the model's input; reduction",
       .attributes = {{"reduction", A::kText}},
       .fold = fold_scatter_nd},
      {.op = "ScatterElements",
       .since = 11,
       .limits = "inputs that depend on the model's input; reduction",
       .attributes = {{"axis"}, {"reduction", A::kText}},
       .fold = fold_scatter_elements},
      {.op = "OneHot",
       .since = 9,
       .limits = kConstants,
       .attributes = {{"axis"}},
       .fold = fold_one_hot},
      {.op = "NonZero", .since = 9, .limits = kConstants, .fold = fold_non_zero}};
  for (ImportRow& row : rows)
    row.becomes = row.import != nullptr ? "its value; slice" : "its value";
  return rows;
}

}  // namespace trainyard::onnx
