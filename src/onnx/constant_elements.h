// src/onnx/constant_elements.h: computes constants from a constant by moving or broadcasting its
// elements, or changing its dimensions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/onnx/import_table.h"

namespace trainyard::onnx {

/// Returns whether a constant may have `elements` elements; false for -1, the result of product()
/// for impossible sizes.
bool may_hold(int64_t elements);
/// Returns the number of elements; -1 if the sizes are impossible.
int64_t product(const std::vector<int64_t>& dims);
Error too_large(const NodeImport& n);

std::vector<int64_t> strides_of(const std::vector<int64_t>& dims);
/// Returns a constant of `dims` whose element i is element from(i) of `c`.
Constant picked(const Constant& c, const std::vector<int64_t>& dims,
                const std::function<int64_t(int64_t)>& from);
/// Element [i0, i1, ...] of the result is element offset + sum(i_k * steps[k]) of `c`.
Constant strided(const Constant& c, const std::vector<int64_t>& dims, int64_t offset,
                 const std::vector<int64_t>& steps);
Constant with_dims(Constant c, std::vector<Extent> dims);

/// Returns the steps with which to read `from` as if it were broadcast to `to`; nothing if it does
/// not broadcast.
std::optional<std::vector<int64_t>> broadcast_steps(const std::vector<int64_t>& from,
                                                    const std::vector<int64_t>& to);
std::optional<std::vector<int64_t>> broadcast_dims(const std::vector<int64_t>& a,
                                                   const std::vector<int64_t>& b);

/// Returns element i of a constant; for a splat, the single stored element.
template <typename T>
const T& at(const std::vector<T>& values, const Constant& c, int64_t i) {
  return values[c.is_splat ? 0 : static_cast<size_t>(i)];
}

}  // namespace trainyard::onnx
