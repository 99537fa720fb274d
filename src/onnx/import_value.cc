#include "src/onnx/import_value.h"

#include <algorithm>

#include "src/base/check.h"

namespace trainyard::onnx {

std::string to_string(const std::vector<Extent>& extents) {
  std::string text = "[";
  for (const Extent& e : extents) {
    if (text.size() > 1) text += ", ";
    if (!e.batch || e.count != 1) text += std::to_string(e.count);
    if (e.batch) text += "N";
  }
  return text + "]";
}

bool has_batch(const std::vector<Extent>& extents) {
  return std::ranges::any_of(extents, &Extent::batch);
}

std::vector<int64_t> counts_of(const std::vector<Extent>& extents) {
  std::vector<int64_t> counts;
  for (const Extent& e : extents) counts.push_back(e.count);
  return counts;
}

std::vector<Extent> extents_of(const std::vector<int64_t>& counts) {
  std::vector<Extent> extents;
  for (const int64_t count : counts) extents.push_back({count, false});
  return extents;
}

std::vector<int64_t> stored_sizes(const std::vector<Extent>& extents) {
  std::vector<int64_t> sizes;
  for (const Extent& e : extents) {
    int64_t size = 0;
    const bool fits = !__builtin_mul_overflow(e.count, e.batch ? kProbeSamples : 1, &size);
    sizes.push_back(fits ? size : -1);
  }
  return sizes;
}

int64_t Constant::elements() const {
  TRAINYARD_CHECK(!has_batch(dims), "elements of a constant with an open size");
  int64_t n = 1;
  for (const Extent& e : dims) n *= e.count;
  return n;
}

bool Constant::empty() const {
  return stored() == 0 || std::ranges::any_of(dims, [](const Extent& e) { return e.count < 1; });
}

bool Constant::uniform() const {
  if (stored() == 0) return false;
  if (!is_float)
    return std::ranges::all_of(*ints, [&](const Extent& x) { return x == ints->front(); });
  return std::ranges::all_of(*floats, [&](float x) { return x == floats->front(); });
}

Constant turned(const Constant& matrix) {
  Constant result = matrix;
  std::swap(result.dims[0], result.dims[1]);
  result.transposed = !matrix.transposed;
  const auto rows = static_cast<size_t>(matrix.dims[0].count);
  const auto columns = static_cast<size_t>(matrix.dims[1].count);
  if (matrix.is_splat) return result;
  const auto turn = [&](const auto& from) {
    auto to = from;
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
    }
    return std::make_shared<const std::decay_t<decltype(from)>>(std::move(to));
  };
  result.floats = turn(*matrix.floats);
  if (matrix.origins) result.origins = turn(*matrix.origins);
  return result;
}

Numbers numbers_of(const Constant& c, int64_t count, const std::function<int64_t(int64_t)>& from) {
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i) {
    const size_t at = c.is_splat ? 0 : static_cast<size_t>(from(i));
    numbers.values.push_back((*c.floats)[at]);
    if (c.origins) numbers.origins.push_back((*c.origins)[at]);
  }
  return numbers;
}

Numbers numbers_of(const Constant& c) {
  if (c.is_splat) {
    return numbers_of(c, c.elements(), [](int64_t) { return 0; });
  }
  Numbers numbers{*c.floats, {}};
  if (c.origins) numbers.origins = *c.origins;
  return numbers;
}

Constant float_constant(std::vector<int64_t> dims, std::vector<float> values) {
  Constant c;
  c.dims = extents_of(dims);
  c.floats = std::make_shared<const std::vector<float>>(std::move(values));
  return c;
}

Constant int_constant(std::vector<int64_t> dims, std::vector<Extent> values) {
  Constant c;
  c.dims = extents_of(dims);
  c.is_float = false;
  c.ints = std::make_shared<const std::vector<Extent>>(std::move(values));
  return c;
}

Extent View::extent(const std::vector<int>& dim) const {
  Extent e;
  for (const int atom : dim) {
    if (atom == 0) {
      e.batch = true;
    } else {
      e.count *= atoms[static_cast<size_t>(atom)];
    }
  }
  return e;
}

std::vector<Extent> View::extents() const {
  std::vector<Extent> all;
  for (const std::vector<int>& dim : dims) all.push_back(extent(dim));
  return all;
}

void View::push_dim(int64_t size) {
  dims.emplace_back();
  if (size == 1) return;
  dims.back().push_back(static_cast<int>(atoms.size()));
  atoms.push_back(size);
}

void View::split(int atom, int64_t first) {
  const auto at = static_cast<size_t>(atom);
  TRAINYARD_CHECK(atom > 0 && first > 1 && atoms[at] > first && atoms[at] % first == 0,
                  "an atom that does not split so");
  const int64_t rest = atoms[at] / first;
  atoms[at] = first;
  atoms.insert(atoms.begin() + atom + 1, rest);
  for (std::vector<int>& dim : dims) {
    for (size_t i = 0; i < dim.size(); ++i) {
      if (dim[i] > atom) ++dim[i];
    }
    const auto here = std::ranges::find(dim, atom);
    if (here != dim.end()) dim.insert(here + 1, atom + 1);
  }
}

std::vector<Extent> dims_of(const Value& value) {
  if (const auto* constant = std::get_if<Constant>(&value)) return constant->dims;
  return std::get<View>(value).extents();
}

}  // namespace trainyard::onnx
