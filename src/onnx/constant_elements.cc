#include "src/onnx/constant_elements.h"

namespace trainyard::onnx {

bool may_hold(int64_t elements) { return elements >= 0 && elements <= kFoldedElementsMax; }

int64_t product(const std::vector<int64_t>& dims) {
  const Shape shape(dims);
  return shape.fits() ? shape.elements() : -1;
}

Error too_large(const NodeImport& n) {
  return n.refuse("a constant of more than " + std::to_string(kFoldedElementsMax) + " elements");
}

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

}  // namespace trainyard::onnx
