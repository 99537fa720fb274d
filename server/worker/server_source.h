// server/worker/server_source.h: a file or folder of the server that is a source of a dataset, in
// the state that it had when it was opened.
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
  /// `index` is the source's index in the dataset's spec, for messages. Errors: those of
  /// open_allowed_path().
  static Result<ServerSource> open(const v1::DatasetSource& source, int index,
                                   std::span<const std::filesystem::path> roots);

  std::filesystem::path path() const { return opened_.path(); }
  /// Reads the content and returns its SHA-256.
  Result<std::string> digest() const;
  /// Identifies the state of the source: while the stamp is the same, the content need not be read
  /// again. Empty if the source was changed less than kSettledS seconds ago, because file systems'
  /// times are coarse and another change could leave them the same.
  std::string trusted_stamp(int64_t now_s) const;
  static constexpr int64_t kSettledS = 2;
  /// Error: SOURCE_CHANGED unless the content has the digest `sha256`. Reads the content unless
  /// `stamp` is the current stamp.
  Status check_content(const std::string& sha256, const std::string& stamp) const;
  /// Error: SOURCE_CHANGED if the source has changed since it was opened.
  Status check_unchanged() const;
  /// Replaces the source's path in an error by the name that users know: files are read through
  /// their descriptors, whose paths mean nothing to users.
  Error with_name(Error error) const;

 private:
  Error changed(const std::string& how) const;

  std::string name_, field_;
  SourceStamp stamp_;
  AllowedPath opened_;
};

}  // namespace trainyard
