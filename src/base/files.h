// src/base/files.h: durable file operations, behind an interface so that tests can make each one
// fail.
//
// Every durable write of the project goes through here: temporary file, fsync, rename, fsync of the
// directory. A path given by a client never reaches these functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// What the system's error `err` says of a file, as in "cannot open PATH: Permission denied":
/// RESOURCE_EXHAUSTED/STORAGE_FULL for ENOSPC, EDQUOT and EFBIG, NOT_FOUND/FILE_NOT_FOUND,
/// PERMISSION_DENIED/FILE_ACCESS_DENIED, and UNAVAILABLE/STORAGE_ERROR for all else, which may
/// pass.
Error file_error(std::string_view what, const std::filesystem::path& path, int err);
/// Whether `reason` is one of file_error()'s: it says that a file is missing or cannot be read or
/// written just now, and nothing about what is in it.
bool is_of_file_error(std::string_view reason);

/// A new file that is filled in any order. Closing it without finish() leaves it as it is.
class FileFiller {
 public:
  virtual ~FileFiller() = default;
  /// Thread-safe. `offset` and the bytes lie within the file's size.
  virtual Status write_at(int64_t offset, std::span<const std::byte> bytes) = 0;
  /// fsyncs. Does not sync the directory.
  virtual Status finish() = 0;
};

class Files {
 public:
  virtual ~Files() = default;
  /// Creates or truncates `path`, writes `parts` one after another, fsyncs.  Does not sync the
  /// directory.
  virtual Status write_file(const std::filesystem::path& path,
                            std::span<const std::span<const std::byte>> parts) = 0;
  /// Creates or truncates `path` with `bytes` bytes, all zero, and takes the room for them.
  virtual Result<std::unique_ptr<FileFiller>> create_file(const std::filesystem::path& path,
                                                          int64_t bytes) = 0;
  /// Atomic rename, then fsync of the target's directory. Directories too.
  virtual Status rename_durable(const std::filesystem::path& from,
                                const std::filesystem::path& to) = 0;
  virtual Status sync_directory(const std::filesystem::path& directory) = 0;
  virtual Status create_directories(const std::filesystem::path& directory) = 0;
  /// A hard link: one more name of the same file. Does not sync the directory.
  virtual Status link_file(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// Removes a file or a whole directory; a missing path is not an error.
  virtual Status remove_all(const std::filesystem::path& path) = 0;
};

/// The file system of this machine. Errors: file_error(). Thread-safe. Files are its owner's and
/// its group's (0640): a server's state.
Files& local_files();
/// The same for what a person asked for: the umask alone decides who may read it.
Files& user_files();

/// Writes `parts`, one after another, to `path` through `path`.tmp: a reader sees either the old
/// content or the new one. An error leaves no temporary file behind.
Status replace_file(Files& files, const std::filesystem::path& path,
                    std::span<const std::span<const std::byte>> parts);
Status replace_file(Files& files, const std::filesystem::path& path, std::string_view text);

/// Reads a whole file of at most `bytes_max` bytes. NOT_FOUND/FILE_NOT_FOUND if it is not there.
Result<std::string> read_file(const std::filesystem::path& path, int64_t bytes_max);

/// A read-only memory map of a whole file. Empty files map to an empty span.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile() = default;
  MappedFile(MappedFile&& o) noexcept;
  MappedFile& operator=(MappedFile&& o) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trainyard
