#include "src/onnx/constant_elements.h"

#include <cmath>

#include "src/onnx/importer_axes.h"

namespace trainyard::onnx {

namespace {

bool is_equal(const Extent& a, const Extent& b) { return a == b; }
bool is_equal(Origin a, Origin b) { return a == b; }
bool is_equal(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

bool may_hold(int64_t elements) { return elements >= 0 && elements <= kFoldedElementsMax; }

int64_t product(const std::vector<int64_t>& dims) {
  const Shape shape(dims);
  return shape.fits() ? shape.elements() : -1;
}

Error too_large(const NodeImport& n) {
  return n.refuse("a constant of more than " + std::to_string(kFoldedElementsMax) + " elements");
}

Constant picked(const Constant& c, std::vector<Extent> dims,
                const std::function<int64_t(int64_t)>& from) {
  Constant result = c;
  const int64_t count = product(stored_sizes(dims));
  result.dims = std::move(dims);
  result.initializer.clear();
  if (c.is_splat) return result;
  const auto pick = [&](const auto& values) {
    std::decay_t<decltype(values)> picked;
    picked.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) picked.push_back(values[static_cast<size_t>(from(i))]);
    return std::make_shared<const std::decay_t<decltype(values)>>(std::move(picked));
  };
  if (c.is_float) {
    result.floats = pick(*c.floats);
    if (c.origins) result.origins = pick(*c.origins);
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

Constant strided(const Constant& c, const std::vector<Extent>& dims, int64_t offset,
                 const std::vector<int64_t>& steps) {
  const std::vector<int64_t> sizes = stored_sizes(dims), strides = strides_of(sizes);
  return picked(c, dims, [&](int64_t i) {
    int64_t from = offset;
    for (size_t k = 0; k < sizes.size(); ++k) {
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

Result<std::vector<int64_t>> positions_of(const NodeImport& n, const Constant& indices,
                                          const Extent& size) {
  if (indices.is_float || has_batch(*indices.ints))
    return n.refuse("indices are not numbers of elements");
  const int64_t elements = stored_sizes({size})[0];
  std::vector<int64_t> positions;
  for (const Extent& e : *indices.ints) {
    const int64_t at = e.count < 0 && !size.batch ? e.count + elements : e.count;
    if (at < 0 || at >= elements) return n.refuse("an index is out of range");
    if (size.batch && at != 0 && !has_batch(indices.dims)) return n.refuse("selects a sample");
    positions.push_back(at);
  }
  return positions;
}

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

std::optional<std::vector<Extent>> broadcast_dims(const std::vector<Extent>& a,
                                                  const std::vector<Extent>& b) {
  std::vector<Extent> dims(std::max(a.size(), b.size()));
  for (const auto* from : {&a, &b}) {
    for (size_t i = 0; i < from->size(); ++i) {
      Extent& d = dims[dims.size() - from->size() + i];
      const Extent& size = (*from)[i];
      if (size == d || size == Extent{}) continue;
      if (d != Extent{}) return std::nullopt;
      d = size;
    }
  }
  return dims;
}

Constant spread(const Constant& c, const std::vector<Extent>& dims) {
  if (c.dims == dims) return c;
  return strided(c, dims, 0, *broadcast_steps(stored_sizes(c.dims), stored_sizes(dims)));
}

std::optional<Constant> one_part(const Constant& c, size_t axis, int64_t parts) {
  const std::vector<int64_t> sizes = stored_sizes(c.dims);
  if (sizes[axis] % parts != 0) return std::nullopt;
  std::vector<Extent> dims = c.dims;
  dims[axis] = {sizes[axis] / parts, false};
  if (c.is_splat) return with_dims(c, std::move(dims));
  const int64_t inner = strides_of(sizes)[axis], size = sizes[axis] * inner, part = size / parts;
  const auto is_same = [&](const auto& values) {
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const auto &x = values[static_cast<size_t>(i)],
                 &first = values[static_cast<size_t>(i - i % size + i % part)];
      if (!is_equal(x, first)) return false;
    }
    return true;
  };
  if (c.origins && !is_same(*c.origins)) return std::nullopt;
  if (c.is_float ? !is_same(*c.floats) : !is_same(*c.ints)) return std::nullopt;
  return picked(c, std::move(dims), [&](int64_t i) { return i / part * size + i % part; });
}

Constant with_open_batch(Constant c, const std::vector<Extent>& like,
                         std::optional<int64_t> fixed_batch) {
  for (size_t i = 1; fixed_batch && i <= std::min(c.dims.size(), like.size()); ++i) {
    const size_t axis = c.dims.size() - i;
    const Extent same = like[like.size() - i];
    if (!same.batch || c.dims[axis] != Extent{same.count * *fixed_batch, false}) continue;
    if (c.dims[axis] == Extent{}) continue;  // broadcast
    const std::optional<Constant> part = one_part(c, axis, *fixed_batch);
    if (!part) continue;
    std::vector<Extent> dims = part->dims;
    dims[axis].batch = true;
    const int64_t inner = strides_of(stored_sizes(dims))[axis] * same.count;
    c = picked(*part, std::move(dims),
               [inner](int64_t k) { return k / (inner * kProbeSamples) * inner + k % inner; });
  }
  return c;
}

Result<Constant> one_sample(Constant c) {
  for (size_t i = 0; i < c.dims.size(); ++i) {
    if (!c.dims[i].batch) continue;
    std::optional<Constant> part = one_part(c, i, kProbeSamples);
    if (!part) return misfit("a constant that differs between samples");
    c = std::move(*part);
  }
  return c;
}

}  // namespace trainyard::onnx
