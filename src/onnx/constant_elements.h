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
Constant picked(const Constant& c, std::vector<Extent> dims,
                const std::function<int64_t(int64_t)>& from);
/// Element [i0, i1, ...] of the result is element offset + sum(i_k * steps[k]) of `c`.
Constant strided(const Constant& c, const std::vector<Extent>& dims, int64_t offset,
                 const std::vector<int64_t>& steps);
/// Returns the result of an operation on two sizes; nothing if it depends on the batch size in a
/// way that an Extent cannot express.
std::optional<Extent> size_arithmetic(std::string_view op, Extent a, Extent b);
Constant with_dims(Constant c, std::vector<Extent> dims);

/// Returns the steps with which to read `from` as if it were broadcast to `to`; nothing if it does
/// not broadcast.
std::optional<std::vector<int64_t>> broadcast_steps(const std::vector<int64_t>& from,
                                                    const std::vector<int64_t>& to);
std::optional<std::vector<Extent>> broadcast_dims(const std::vector<Extent>& a,
                                                  const std::vector<Extent>& b);
/// Returns the constant with the elements that it has when it is broadcast to `dims`, which it must
/// fit.
Constant spread(const Constant& c, const std::vector<Extent>& dims);
/// Returns the constant with the first of `parts` equal parts of dimension `axis`; nothing if the
/// parts have different elements.
std::optional<Constant> one_part(const Constant& c, size_t axis, int64_t parts);
/// Returns the constant with the batch in each dimension in which it has the same elements for each
/// sample of a fixed batch, and `like`, whose dimensions end where its own do, has the batch.
Constant with_open_batch(Constant c, const std::vector<Extent>& like,
                         std::optional<int64_t> fixed_batch);
/// Returns the elements of x where `test` is true, and those of y elsewhere.
Result<Constant> chosen(const Constant& test, const Constant& x, const Constant& y);
/// Returns the elements of one sample, with dimensions that do not include the batch.
/// ONNX_UNSUPPORTED if they are not the same for all samples.
Result<Constant> one_sample(Constant c);
/// Returns the stored numbers of `indices` as positions in a dimension, counted from its front.
/// Only indices that depend on the sample choose among samples.
Result<std::vector<int64_t>> positions_of(const NodeImport& n, const Constant& indices,
                                          const Extent& size);

/// Returns element i of a constant; for a splat, the single stored element.
template <typename T>
const T& at(const std::vector<T>& values, const Constant& c, int64_t i) {
  return values[c.is_splat ? 0 : static_cast<size_t>(i)];
}

}  // namespace trainyard::onnx
