// server/protocol/report_spool.h: stores a worker's reports on disk from their creation until the
// daemon has acknowledged them, so that they survive the end of the worker and of the daemon.
//
// The file is a sequence of records: the length (4 bytes) and the CRC-32C (4 bytes) of a serialized
// WorkerReport, both little endian, then the report. Only one process appends. A reader stops at
// the first incomplete or damaged record, since a kill or a power cut may leave one at the end.
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
  /// Creates an empty file, or truncates an existing one. Fails with file system errors.
  static Result<ReportSpool> create(std::filesystem::path path);

  /// Appends a record. RESOURCE_EXHAUSTED/SPOOL_FULL if the file would exceed kBytesMax. After a
  /// failure the file ends with its last complete record, accepts() is false, and the caller must
  /// not append before the next keep(), because a reader accepts no gap.
  Status append(const v1::WorkerReport& report);
  bool accepts() const { return accepts_; }
  /// Returns the size of all records.
  int64_t bytes() const { return bytes_; }
  /// Returns the record at `offset` and advances `offset` to the next record; nothing at the end.
  std::optional<v1::WorkerReport> read_at(int64_t& offset) const;
  /// Replaces all records by `reports`, once all others have been acknowledged. The file is
  /// replaced atomically.
  Status keep(const std::deque<v1::WorkerReport>& reports);
  /// Makes everything appended so far durable.
  Status sync();

  /// Limits the file's size, so that the disk does not fill while no daemon reads the reports.
  static constexpr int64_t kBytesMax = int64_t{1} << 30;

 private:
  std::filesystem::path path_;
  UniqueFd file_;
  int64_t bytes_ = 0;
  bool accepts_ = true;
};

/// Reads a spool to which no process appends any longer. Not thread-safe.
class SpoolReader {
 public:
  /// Opens a spool to read the reports whose number is above `after`. A missing file has none.
  /// Fails with file system errors.
  static Result<SpoolReader> open(const std::filesystem::path& path, int64_t after);
  /// Returns the next report, in order; nothing at the end.
  std::optional<v1::WorkerReport> next();

 private:
  UniqueFd file_;  // -1: the file is missing
  int64_t offset_ = 0;
  int64_t after_ = 0;
};

}  // namespace trainyard
