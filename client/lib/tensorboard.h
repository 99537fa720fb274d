// client/lib/tensorboard.h: TensorBoard's event files.
//
// A file is records, each the length of its data (u64, little-endian), the masked CRC-32C of that
// length, the data, and the masked CRC-32C of the data; the data is an Event message
// (proto/tensorboard/event.proto). Readers ignore an incomplete record at the end, so a file can be
// read while it grows.
//
// Source: TensorFlow, "TFRecord" and event.proto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "client/lib/metric_history.h"
#include "src/base/result.h"

namespace trainyard::client {

/// One record of `data`.
std::string tensorboard_record(std::string_view data);

/// A file of scalars being written: each sample is in the file when add() returns from a flush.
class TensorBoardFile {
 public:
  /// Creates `folder`, and in it the file "events.out.tfevents.<time>.<name>", truncated if it
  /// exists: exporting a run again replaces the earlier output. Errors: STORAGE_ERROR.
  static Result<TensorBoardFile> create(const std::filesystem::path& folder, double time_s,
                                        const std::string& name);

  void add(const std::string& key, const MetricSample& sample);
  /// Passes what was added to the system. STORAGE_ERROR if any write failed.
  Status flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  TensorBoardFile(std::filesystem::path path, std::ofstream file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace trainyard::client
