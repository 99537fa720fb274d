// server/processes/output_log.h: stores a worker's output in files of limited size.
//
// A worker that prints without end must neither block on its pipe nor fill the disk. When the file
// reaches half of the limit, it replaces the older of the two files, so that the newest output is
// always available. A marker line shows where older output was dropped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "src/base/handle.h"

namespace trainyard::server {

class OutputLog {
 public:
  static constexpr int64_t kFileBytesMax = 1 << 20;  // limit of each of the two files
  static constexpr size_t kTailBytesMax = 2048;

  explicit OutputLog(std::filesystem::path path) : path_(std::move(path)) {}

  /// Reads the available bytes of the non-blocking `fd`, at most 256 KiB, so that one worker cannot
  /// occupy the supervisor's thread. False at the end of the pipe.
  bool drain(int fd);
  /// Returns the newest output, at most kTailBytesMax bytes, for the log and the job's events.
  const std::string& tail() const { return tail_; }
  int64_t bytes() const { return bytes_; }

 private:
  void append(std::string_view text);

  std::filesystem::path path_;
  UniqueFd file_;
  int64_t file_bytes_ = 0;
  int64_t bytes_ = 0;
  bool broken_ = false;  // the disk is full: output is dropped and training continues
  std::string tail_;
};

}  // namespace trainyard::server
