// src/onnx/constant_elements.h: constants with other elements of the same ones: moved, broadcast,
// of other dimensions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/onnx/import_table.h"

namespace trainyard::onnx {

/// Whether a constant may have so many elements. -1, of sizes that are not possible: no.
bool may_hold(int64_t elements);
/// Elements; -1 where the sizes are not possible.
int64_t product(const std::vector<int64_t>& dims);
Error too_large(const NodeImport& n);

std::vector<int64_t> strides_of(const std::vector<int64_t>& dims);
/// A constant of `dims` whose element i is element from(i) of `c`.
Constant picked(const Constant& c, const std::vector<int64_t>& dims,
                const std::function<int64_t(int64_t)>& from);
/// picked() where element [i0, i1, ...] of the result is at offset + sum(i_k * steps[k]) of `c`.
Constant strided(const Constant& c, const std::vector<int64_t>& dims, int64_t offset,
                 const std::vector<int64_t>& steps);
Constant with_dims(Constant c, std::vector<Extent> dims);

/// The steps with which `from` is read as if it had the sizes `to`; nothing if it cannot be.
std::optional<std::vector<int64_t>> broadcast_steps(const std::vector<int64_t>& from,
                                                    const std::vector<int64_t>& to);
std::optional<std::vector<int64_t>> broadcast_dims(const std::vector<int64_t>& a,
                                                   const std::vector<int64_t>& b);

/// Element i of a constant, of its dimensions or as the one that stands for all.
template <typename T>
const T& at(const std::vector<T>& values, const Constant& c, int64_t i) {
  return values[c.is_splat ? 0 : static_cast<size_t>(i)];
}

}  // namespace trainyard::onnx
