// Imports Gather and GatherND of values by constant indices.
#include <algorithm>

#include "src/onnx/constant_elements.h"

namespace trainyard::onnx {
namespace {

using Ints = std::vector<int64_t>;

/// Returns the dimensions of `x` with those of the indices in place of `axis`.
std::vector<Extent> selected_dims(const View& x, int64_t axis, const std::vector<Extent>& indices) {
  std::vector<Extent> dims = x.extents();
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, indices.begin(), indices.end());
  return dims;
}

// Rows of a parameter that are taken more than once, such as the entries of a table of relative
// positions. Their sum of gradients is a product with a matrix of ones and zeros.
Result<View> rows_by_product(NodeImport& n, const Constant& table, const Ints& rows) {
  const int64_t size = table.dims[0].count, count = std::ssize(rows);
  if (!may_hold(product({size, count}))) {
    return n.refuse("takes rows of a parameter more than once, by a matrix of more than " +
                    std::to_string(kFoldedElementsMax) + " elements");
  }
  std::vector<float> ones(static_cast<size_t>(size * count), 0);
  for (int64_t i = 0; i < count; ++i) {
    ones[static_cast<size_t>(i * size + rows[static_cast<size_t>(i)])] = 1;
  }
  ASSIGN_OR_RETURN(View x, n.importer().to_view(table));
  std::vector<Extent> dims = x.extents();
  int64_t width = 1;
  for (size_t i = 1; i < dims.size(); ++i) width *= dims[i].count;
  ASSIGN_OR_RETURN(x, n.importer().reshape(std::move(x), {dims[0], {width, false}}));
  ASSIGN_OR_RETURN(View y, n.importer().mat_mul(float_constant({count, size}, std::move(ones)), x));
  dims[0] = {count, false};
  return n.importer().reshape(std::move(y), dims);
}

/// Takes elements along an axis of a value and defines the output, in which the dimensions of the
/// indices replace the axis.
Status take(NodeImport& n, const Value& data, int64_t axis, const Constant& given) {
  Importer& importer = n.importer();
  ASSIGN_OR_RETURN(const Constant indices, one_sample(given));
  const Extent size = dims_of(data)[static_cast<size_t>(axis)];
  if (size.batch) return n.refuse("selects samples from the batch");
  const auto* layer = std::get_if<View>(&data);
  if (layer != nullptr && importer.has_batch(layer->layer) && has_batch(given.dims)) {
    return n.refuse("selects from each sample by the indices of all samples");
  }
  ASSIGN_OR_RETURN(const Ints positions, positions_of(n, indices, size));
  const auto* table = std::get_if<Constant>(&data);
  const auto view = [&]() -> Result<View> {
    return table != nullptr ? importer.to_view(*table) : Result<View>(std::get<View>(data));
  };
  if (indices.uniform()) {
    ASSIGN_OR_RETURN(const View x, view());
    ASSIGN_OR_RETURN(View y, take_index(n, x, axis, positions.front()));
    y.dims.insert(y.dims.begin() + axis, given.dims.size(), std::vector<int>{});
    return n.give(expanded(n, std::move(y), selected_dims(x, axis, given.dims)));
  }
  View y;
  if (table != nullptr && table->trainable && axis == 0 && !has_batch(table->dims)) {
    ASSIGN_OR_RETURN(y, rows_by_product(n, *table, positions));
  } else {
    ASSIGN_OR_RETURN(const View x, view());
    ASSIGN_OR_RETURN(y, take_list(n, x, axis, positions));
  }
  const std::vector<Extent> dims = selected_dims(y, axis, indices.dims);
  ASSIGN_OR_RETURN(y, importer.reshape(std::move(y), dims));
  for (size_t i = 0; i < given.dims.size(); ++i) {
    auto& dim = y.dims[static_cast<size_t>(axis) + i];
    if (given.dims[i].batch) dim.insert(dim.begin(), 0);
  }
  return n.give(std::move(y));
}

}  // namespace

Status import_gather_of_constants(NodeImport& n) {
  ASSIGN_OR_RETURN(const int64_t axis, n.axis(n.get_int("axis", 0), std::ssize(n.dims(0))));
  return take(n, n.input(0), axis, *n.find_constant(1));
}

Status import_gather_nd(NodeImport& n) {
  const Constant* indices = n.find_constant(1);
  if (!n.has_input(0) || indices == nullptr) {
    return n.refuse("its indices depend on the model's input, expected only constants");
  }
  const bool selects_rows = !indices->is_float && !indices->dims.empty() &&
                            indices->dims.back() == Extent{} && !n.dims(0).empty() &&
                            n.get_int("batch_dims", 0) == 0;
  if (!selects_rows) return n.refuse("selects by several dimensions");
  Constant rows = *indices;
  rows.dims.pop_back();
  return take(n, n.input(0), 0, rows);
}

}  // namespace trainyard::onnx
