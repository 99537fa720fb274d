// src/data/row_copies.h: counts held-out rows that equal rows of the training set.
#pragma once

#include <cstdint>
#include <span>

#include "src/data/dataset.h"

namespace trainyard {

struct RowCopies {
  int64_t rows = 0;         // held-out rows
  int64_t copies = 0;       // held-out rows whose features equal those of a training row
  int64_t same_target = 0;  // copies whose target equals that of every such training row

  /// Returns true if there are enough copies to change a metric and they are no coincidence. In
  /// tables with few different values, rows are equal by chance; then some of their targets differ.
  bool matter() const;
};

/// `seen_rows` and `held_out_rows` are indices into their partitions, which have the same schema;
/// this must not be that of a stream. The count is exact: rows with equal hashes are compared.
/// Takes about 50 bytes of memory for each row of `held_out`; no rows are copied.
RowCopies count_copies(const DatasetSchema& schema, const Partition& seen,
                       std::span<const int64_t> seen_rows, const Partition& held_out,
                       std::span<const int64_t> held_out_rows);

/// Returns the size of a row's features in bytes.
int64_t feature_bytes(const DatasetSchema& schema);

}  // namespace trainyard
