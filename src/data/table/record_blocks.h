// src/data/table/record_blocks.h: a stream of records cut into blocks that end where a record does,
// for threads that parse them.
//
// In CSV that has nothing to refuse, quotes come in pairs and a line break is inside a field
// exactly where an odd number of them stands before it. So the number of quotes alone tells where
// records end, up to the first error of a file; what a reader makes of the blocks behind it is of
// no use.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/mutex.h"
#include "src/base/result.h"
#include "src/data/files/byte_source.h"

namespace trainyard {

struct RecordBlock {
  int64_t index = 0;
  std::vector<char> bytes;  // with kCsvPadding behind the text
  size_t size = 0;          // of the text
};

/// Thread-safe.
class RecordBlocks {
 public:
  /// Borrows `source`, of which the first `skipped` bytes belong to no block. A block has about
  /// `block_bytes`, at least 1, and more only where a record does. Without `quotes` every line
  /// break ends a record.
  RecordBlocks(ByteSource& source, int64_t skipped, bool quotes, size_t block_bytes)
      : source_(source), quotes_(quotes), block_bytes_(block_bytes), skipped_(skipped) {}

  /// Takes the next block, in the memory that `block` has; false at the end. Refuses a record that
  /// is longer than kLineBytesMax.
  Result<bool> next(RecordBlock& block);

 private:
  Status skip(std::vector<char>& room) TRAINYARD_REQUIRES(mu_);

  ByteSource& source_;
  const bool quotes_;
  const size_t block_bytes_;
  Mutex mu_;
  int64_t skipped_ TRAINYARD_GUARDED_BY(mu_);         // are still to come
  std::vector<char> rest_ TRAINYARD_GUARDED_BY(mu_);  // the beginning of a record
  int64_t index_ TRAINYARD_GUARDED_BY(mu_) = 0;       // of the next block
  bool eof_ TRAINYARD_GUARDED_BY(mu_) = false;
};

}  // namespace trainyard
