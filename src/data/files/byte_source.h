// src/data/files/byte_source.h: reads the bytes of a source, and decompresses them if they begin as
// gzip does.
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
  /// Reads up to out.size() bytes; returns 0 only at the end. Refusals: DATASET_INVALID for damaged
  /// or truncated gzip, STORAGE_ERROR for a file that cannot be read. They name the source, never a
  /// path.
  virtual Result<size_t> read(std::span<char> out) = 0;
  /// Returns an upper bound for the bytes that read() returns in total: the exact size of a plain
  /// source; for gzip the compressed size times deflate's largest ratio.
  virtual int64_t bytes_max() const = 0;
  virtual bool compressed() const = 0;
};

struct RegularFile {
  UniqueFd fd;
  int64_t bytes = 0;
};
/// Opens a regular file for reading. Errors: FILE_NOT_FOUND, STORAGE_ERROR, and DATASET_INVALID
/// with the text `otherwise` if `path` is no regular file.
Result<RegularFile> open_regular_file(const std::filesystem::path& path, const std::string& what,
                                      const std::string& otherwise);

/// `what` names the source in messages ("train_images").
Result<std::unique_ptr<ByteSource>> open_file_source(const std::filesystem::path& path,
                                                     const std::string& what);
/// Borrows `bytes`.
std::unique_ptr<ByteSource> open_memory_source(std::string_view bytes, const std::string& what);
/// Borrows `bytes` and never decompresses them, even if they begin as gzip does.
std::unique_ptr<ByteSource> open_plain_source(std::string_view bytes);

/// Fills `out` and returns the number of bytes: less than out.size() only at the end.
Result<size_t> read_full(ByteSource& source, std::span<char> out);

/// The number of bytes after a header, as the header claims it.
struct PromisedBytes {
  std::string text;          // for messages: "the header promises [3, 2], 6 bytes"
  int64_t bytes = 0;         // the exact number of bytes that must follow
  int64_t header_bytes = 0;  // size of the header, which has been read already
};
/// Reads the promised bytes and checks that no others follow. `grow` must enlarge the buffer to
/// `bytes` bytes, keep its content and return its address. It is called as bytes arrive, so that a
/// false header of a small gzip file does not allocate much memory.
Status read_promised(ByteSource& source, const PromisedBytes& promise, const std::string& what,
                     const std::function<char*(int64_t bytes)>& grow);

}  // namespace trainyard
