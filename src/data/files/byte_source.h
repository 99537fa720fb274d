// src/data/files/byte_source.h: the bytes of a source, decompressed on the way if they begin like
// gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Reads up to out.size() bytes; 0 only at the end. Refusals: DATASET_INVALID for damaged or cut
  /// gzip, STORAGE_ERROR for a file that cannot be read. They name the source, never a path.
  virtual Result<size_t> read(std::span<char> out) = 0;
  /// The most bytes that read() can deliver in all: the exact size of a plain source; for gzip what
  /// deflate's largest ratio allows.
  virtual int64_t bytes_max() const = 0;
  virtual bool compressed() const = 0;
};

struct RegularFile {
  UniqueFd fd;
  int64_t bytes = 0;
};
/// Opens a regular file for reading. FILE_NOT_FOUND, STORAGE_ERROR, or DATASET_INVALID with
/// `otherwise` for anything else.
Result<RegularFile> open_regular_file(const std::filesystem::path& path, const std::string& what,
                                      const std::string& otherwise);

/// `what` names the source in messages ("train_images").
Result<std::unique_ptr<ByteSource>> open_file_source(const std::filesystem::path& path,
                                                     const std::string& what);
/// Borrows `bytes`.
std::unique_ptr<ByteSource> open_memory_source(std::string_view bytes, const std::string& what);
/// The same for bytes that are what they are, even if they begin like gzip.
std::unique_ptr<ByteSource> open_plain_source(std::string_view bytes);

/// Fills `out` and returns the number of bytes: less than out.size() only at the end.
Result<size_t> read_full(ByteSource& source, std::span<char> out);

/// What a header promises of the bytes behind it.
struct PromisedBytes {
  std::string text;          // for messages: "the header promises [3, 2], 6 bytes"
  int64_t bytes = 0;         // and not one more
  int64_t header_bytes = 0;  // read already
};
/// Reads them and checks that they are all there is. `grow` gives room for so many bytes and keeps
/// those that were read; it is asked as the bytes come, so that a lying header of a small gzip file
/// costs nothing.
Status read_promised(ByteSource& source, const PromisedBytes& promise, const std::string& what,
                     const std::function<char*(int64_t bytes)>& grow);

}  // namespace trainyard
