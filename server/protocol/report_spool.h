// server/protocol/report_spool.h: a worker's reports on disk, from when they are made until the
// daemon has acknowledged them. They survive the daemon, the worker and both.
//
// The file is a sequence of records: 4 bytes length and 4 bytes CRC-32C of what follows, little
// endian, then a serialized WorkerReport. One process appends; a reader stops at the first record
// that is incomplete or damaged, which is what a kill or a power cut leaves at the end.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>

#include "src/base/handle.h"
#include "src/base/result.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard {

/// Not thread-safe.
class ReportSpool {
 public:
  /// A new, empty file; errors of the file system.
  static Result<ReportSpool> create(std::filesystem::path path);

  /// Behind a failed append, or one that `bytes_max` refuses (RESOURCE_EXHAUSTED/SPOOL_FULL), the
  /// file ends with the last record that is whole; no more is taken before keep(), because a
  /// reader accepts no gap.
  Status append(const v1::WorkerReport& report);
  bool accepts() const { return accepts_; }
  /// Of all records.
  int64_t bytes() const { return bytes_; }
  /// The record that begins at `offset`, which becomes that of the next one; nothing at the end.
  std::optional<v1::WorkerReport> read_at(int64_t& offset) const;
  /// Leaves these alone, in order: all others have been acknowledged. At every instant the file is
  /// either as before or so.
  Status keep(const std::deque<v1::WorkerReport>& reports);
  /// What was appended survives a power cut.
  Status sync();

  /// More is refused: a disk must not fill because nobody listens.
  static constexpr int64_t kBytesMax = int64_t{1} << 30;

 private:
  std::filesystem::path path_;
  UniqueFd file_;
  int64_t bytes_ = 0;
  bool accepts_ = true;
};

/// Reads a spool that nobody appends to any more. Not thread-safe.
class SpoolReader {
 public:
  /// The reports behind number `after`. A file that is not there has none; errors of the file
  /// system.
  static Result<SpoolReader> open(const std::filesystem::path& path, int64_t after);
  /// The next one, in order; nothing at the end.
  std::optional<v1::WorkerReport> next();

 private:
  UniqueFd file_;  // -1: there is none
  int64_t offset_ = 0;
  int64_t after_ = 0;
};

}  // namespace trainyard
