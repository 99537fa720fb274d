// src/data/load/resident_rows.h: a dataset's rows in the form in which they are resident on a
// device (kernels/resident_rows.h): 8-bit images as stored, with a table of the standardized value
// of each byte; tokens unchanged; all other rows as the model's input in F32. The device's batches
// have the same bits as those of a RowTransform and an Augmenter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/resident_rows.h"
#include "src/data/load/augment.h"
#include "src/data/preprocessing.h"

namespace trainyard {

/// The form of resident rows, which is known without the data.
struct ResidentForm {
  kernels::ResidentRows layout;  // its pointers are not set
  int64_t rows = 0;              // number of rows in the partition; for a stream of tokens

  int64_t data_bytes() const;
  /// Returns the sizes of resident_table() and resident_fills() in bytes.
  int64_t table_bytes() const;
  int64_t fills_bytes() const;
};
/// Returns the form of the training partition. `moved`: its images are augmented by a list that
/// passes moves_alone().
ResidentForm resident_form(const DatasetSchema& schema, int64_t context_length, bool category_codes,
                           bool moved);

/// Passes the rows to `write` in order, in one or several parts with data_bytes() bytes in total.
void visit_resident_rows(const ResidentForm& form, const RowTransform& transform,
                         const Partition& partition,
                         const std::function<void(std::span<const std::byte>)>& write);
/// Returns the standardized values of all bytes [C, 256], and of black and filled pixels [C, 2];
/// empty if the layout has none. `mean` is Augmenter::mean().
std::vector<float> resident_table(const ResidentForm& form, const RowTransform& transform);
std::vector<float> resident_fills(const ResidentForm& form, const RowTransform& transform,
                                  std::span<const float> mean);

/// Returns the sample of a batch that refers to row `row` of the partition.
kernels::ResidentSample resident_sample(const RowTransform& transform, const Partition& partition,
                                        int64_t row);

}  // namespace trainyard
