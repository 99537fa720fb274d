// src/data/align.h: converts the rows of one dataset for a model that was trained on another.
//
// Columns, categories and classes are matched by name, tokens by their text: the same file,
// ingested alone or with others, gets different codes. Columns that the model does not know are
// left out.
#pragma once

#include "src/data/dataset.h"
#include "src/data/typed_rows.h"

namespace trainyard {

/// `rows` are of a dataset with the schema `data`; what comes back is of the schema `model` and
/// owns its arrays, unless the two agree: then it borrows those of `rows`. A category or token that
/// the model does not know is unseen. Refusals: EVALUATE_MISMATCH, with all that the dataset lacks:
/// another kind or shape, missing columns, classes that the model does not have.
class AlignedRows {
 public:
  static Result<AlignedRows> align(const DatasetSchema& model, const DatasetSchema& data,
                                   const Partition& rows);
  AlignedRows(AlignedRows&&) = default;  // what is borrowed stays where it is; copies would not
  AlignedRows& operator=(AlignedRows&&) = default;
  const Partition& view() const { return view_; }

 private:
  AlignedRows() = default;
  RawRows own_;  // arrays that had to be changed
  std::vector<int32_t> own_classes_;
  Partition view_;
};

}  // namespace trainyard
