// src/data/load/held_rows.h: a dataset's rows as a device holds them (kernels/held_rows.h): images
// of 8 bits as they are stored, with a table of what a byte becomes; tokens as they are; all else
// as the model's input, F32. What the device makes of them is what a RowTransform and an Augmenter
// make, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/held_rows.h"
#include "src/data/load/augment.h"
#include "src/data/preprocessing.h"

namespace trainyard {

/// Known without the data.
struct HeldForm {
  kernels::HeldRows layout;  // without pointers
  int64_t rows = 0;          // of the partition; of a stream its tokens

  int64_t data_bytes() const;
  /// The table and the fills that the layout asks for, one behind the other.
  int64_t table_bytes() const;
  int64_t fills_bytes() const;
};
/// Of the training partition. `moved`: its images are augmented, by what moves_alone().
HeldForm held_form(const DatasetSchema& schema, int64_t context_length, bool category_codes,
                   bool moved);

/// Calls `write` with the rows, in parts and in their order: data_bytes() in all.
void visit_held_rows(const HeldForm& form, const RowTransform& transform,
                     const Partition& partition,
                     const std::function<void(std::span<const std::byte>)>& write);
/// [C, 256] and [C, 2]; empty where the layout has none. `mean` is Augmenter::mean().
std::vector<float> held_table(const HeldForm& form, const RowTransform& transform);
std::vector<float> held_fills(const HeldForm& form, const RowTransform& transform,
                              std::span<const float> mean);

/// Row `row` of a batch.
kernels::HeldSample held_sample(const RowTransform& transform, const Partition& partition,
                                int64_t row);

}  // namespace trainyard
