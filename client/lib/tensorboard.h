// client/lib/tensorboard.h: writes TensorBoard's event files.
//
// A file is a sequence of records. Each has the length of its data (u64, little-endian), the masked
// CRC-32C of that length, the data, and the masked CRC-32C of the data. The data is an Event
// message (proto/tensorboard/event.proto). Readers ignore an incomplete record at the end, so a
// file can be read while it grows.
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

/// Returns the record for `data`.
std::string tensorboard_record(std::string_view data);

/// A growing file of scalars. Samples from add() are in the file once flush() has returned.
class TensorBoardFile {
 public:
  /// Creates `folder`, and in it the file "events.out.tfevents.<time>.<name>", which is truncated
  /// if it exists: another export of the same run replaces the earlier one. Error: STORAGE_ERROR.
  static Result<TensorBoardFile> create(const std::filesystem::path& folder, double time_s,
                                        const std::string& name);

  void add(const std::string& key, const MetricSample& sample);
  /// Writes the added samples to the file. STORAGE_ERROR if any write failed.
  Status flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  TensorBoardFile(std::filesystem::path path, std::ofstream file)
      : path_(std::move(path)), file_(std::move(file)) {}
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace trainyard::client
