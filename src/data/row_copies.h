// src/data/row_copies.h: rows that are held out and that training sees all the same.
#pragma once

#include <cstdint>
#include <span>

#include "src/data/dataset.h"

namespace trainyard {

struct RowCopies {
  int64_t rows = 0;         // held out
  int64_t copies = 0;       // whose features are, to the bit, those of a row that was seen
  int64_t same_target = 0;  // of these: every seen row like it has its target, too

  /// True if they are copies, and enough of them to change a metric. Tables of few values have
  /// rows that are alike by chance; their targets then differ here and there.
  bool matter() const;
};

/// Rows are indices into their partition, of one schema, which is no stream. Exact: equal hashes
/// are compared. Memory: some 50 bytes for each row of `held`; of the rows nothing is copied.
RowCopies count_copies(const DatasetSchema& schema, const Partition& seen,
                       std::span<const int64_t> seen_rows, const Partition& held,
                       std::span<const int64_t> held_rows);

/// Bytes of one row's features.
int64_t feature_bytes(const DatasetSchema& schema);

}  // namespace trainyard
