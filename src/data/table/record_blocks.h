// src/data/table/record_blocks.h: splits a stream of records into blocks that end at the end of a
// record, so that several threads can parse them.
//
// In valid CSV quotes come in pairs, and a line break is inside a field exactly if the number of
// quotes before it is odd. So counting quotes is enough to find the ends of records, up to the
// first error of a file. Blocks after the first error may be split wrongly, so their content must
// not be used.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/mutex.h"
#include "src/base/result.h"
#include "src/data/files/byte_source.h"

namespace trainyard {

struct RecordBlock {
  int64_t index = 0;
  std::vector<char> bytes;  // the text, followed by at least kCsvPadding bytes
  size_t size = 0;          // length of the text in bytes
};

/// Thread-safe.
class RecordBlocks {
 public:
  /// Borrows `source`, whose first `skipped` bytes belong to no block. A block has about
  /// `block_bytes` (at least 1) bytes, or more if a record does. If `quotes` is false, every line
  /// break ends a record.
  RecordBlocks(ByteSource& source, int64_t skipped, bool quotes, size_t block_bytes)
      : source_(source), quotes_(quotes), block_bytes_(block_bytes), skipped_(skipped) {}

  /// Reads the next block into `block`, whose memory is reused; returns false at the end. Refuses a
  /// record of more than kLineBytesMax bytes.
  Result<bool> next(RecordBlock& block);

 private:
  Status skip(std::vector<char>& room) TRAINYARD_REQUIRES(mu_);

  ByteSource& source_;
  const bool quotes_;
  const size_t block_bytes_;
  Mutex mu_;
  int64_t skipped_ TRAINYARD_GUARDED_BY(mu_);         // bytes that must still be skipped
  std::vector<char> rest_ TRAINYARD_GUARDED_BY(mu_);  // the beginning of the next block's record
  int64_t index_ TRAINYARD_GUARDED_BY(mu_) = 0;       // index of the next block
  bool eof_ TRAINYARD_GUARDED_BY(mu_) = false;
};

}  // namespace trainyard
