// server/worker/server_source.h: one of the server's own files or folders that a dataset is made
// of, as of when it was opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "src/base/allowed_path.h"
#include "src/base/result.h"
#include "trainyard/v1/dataset_service.pb.h"

namespace trainyard {

class ServerSource {
 public:
  /// `index`: its place in the dataset's spec, for messages. Errors: those of open_allowed_path().
  static Result<ServerSource> open(const v1::DatasetSource& source, int index,
                                   std::span<const std::filesystem::path> roots);

  std::filesystem::path path() const { return opened_.path(); }
  /// SHA-256 of its content, which is read for it.
  Result<std::string> digest() const;
  /// Whoever has read the content and finds this stamp later need not read it again. Empty if the
  /// source was changed less than kSettledS ago: a file system's times are coarse, and a change
  /// right after that one could leave them as they are.
  std::string trusted_stamp(int64_t now_s) const;
  static constexpr int64_t kSettledS = 2;
  /// SOURCE_CHANGED unless the content is that of `sha256`. It is read, unless `stamp` is that of
  /// now.
  Status check_content(const std::string& sha256, const std::string& stamp) const;
  /// SOURCE_CHANGED if it is no longer what it was.
  Status check_unchanged() const;
  /// Files are read through their descriptors, whose paths mean nothing to users.
  Error with_name(Error error) const;

 private:
  Error changed(const std::string& how) const;

  std::string name_, field_;
  SourceStamp stamp_;
  AllowedPath opened_;
};

}  // namespace trainyard
