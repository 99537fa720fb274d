// src/data/align.h: converts the rows of one dataset for a model that was trained on another.
//
// Columns, categories and classes are matched by name (columns in any case, booleans in any
// spelling), tokens by their text, since the codes of the same value differ between datasets.
// Columns that the model does not know are left out.
#pragma once

#include "src/data/dataset.h"
#include "src/data/typed_rows.h"

namespace trainyard {

/// Rows converted from the schema `data` to the schema `model`. Arrays that need no conversion are
/// borrowed from `rows`, the others are owned. Categories and tokens that the model does not know
/// become unseen ones. Refusal: EVALUATE_MISMATCH, which lists all differences: another kind or
/// shape, missing columns, classes that the model does not have.
class AlignedRows {
 public:
  static Result<AlignedRows> align(const DatasetSchema& model, const DatasetSchema& data,
                                   const Partition& rows);
  // Movable only: `view_` refers to the owned arrays, which a move keeps in place but a copy would
  // not.
  AlignedRows(AlignedRows&&) = default;
  AlignedRows& operator=(AlignedRows&&) = default;
  const Partition& view() const { return view_; }
  /// Returns the dataset's feature columns that the model does not know.
  const std::vector<std::string>& ignored_columns() const { return ignored_columns_; }

 private:
  AlignedRows() = default;
  RawRows own_;  // the converted arrays
  std::vector<int32_t> own_classes_;
  std::vector<float> own_numbers_;  // the targets
  std::vector<std::string> ignored_columns_;
  Partition view_;
};

}  // namespace trainyard
