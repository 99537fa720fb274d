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

/// Converts the errno value `err` of a file operation to an Error, with a message such as "cannot
/// open PATH: Permission denied": RESOURCE_EXHAUSTED/STORAGE_FULL for ENOSPC, EDQUOT and EFBIG,
/// NOT_FOUND/FILE_NOT_FOUND for ENOENT, PERMISSION_DENIED/FILE_ACCESS_DENIED for EACCES, and
/// UNAVAILABLE/STORAGE_ERROR for all others, since they may be temporary.
Error file_error(std::string_view what, const std::filesystem::path& path, int err);
/// Returns whether `reason` is one that file_error() gives. Such an error means that a file is
/// missing or cannot be read or written at the moment; it says nothing about the file's content.
bool is_of_file_error(std::string_view reason);

/// A new file that is filled in any order. The destructor closes it without fsync.
class FileFiller {
 public:
  virtual ~FileFiller() = default;
  /// Thread-safe. The range from `offset` on must be within the file's size.
  virtual Status write_at(int64_t offset, std::span<const std::byte> bytes) = 0;
  /// Calls fsync for the file. Does not sync the directory.
  virtual Status finish() = 0;
};

class Files {
 public:
  virtual ~Files() = default;
  /// Creates or truncates `path`, writes `parts` one after another and calls fsync. Does not sync
  /// the directory.
  virtual Status write_file(const std::filesystem::path& path,
                            std::span<const std::span<const std::byte>> parts) = 0;
  /// Creates or truncates `path`, makes it `bytes` zero bytes long and reserves their disk space if
  /// the file system can.
  virtual Result<std::unique_ptr<FileFiller>> create_file(const std::filesystem::path& path,
                                                          int64_t bytes) = 0;
  /// Renames a file or directory atomically, then calls fsync for the target's directory.
  virtual Status rename_durable(const std::filesystem::path& from,
                                const std::filesystem::path& to) = 0;
  virtual Status sync_directory(const std::filesystem::path& directory) = 0;
  virtual Status create_directories(const std::filesystem::path& directory) = 0;
  /// Creates `to` as a hard link to `from`. Does not sync the directory.
  virtual Status link_file(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// Removes a file or a whole directory; a missing path is not an error.
  virtual Status remove_all(const std::filesystem::path& path) = 0;
};

/// Returns the file system of this machine. Errors: file_error(). Thread-safe. New files, a
/// server's state, have mode 0640.
Files& local_files();
/// Like local_files(), for files that a user requested: their mode is 0666 less the umask.
Files& user_files();

/// Writes `parts`, one after another, to `path`.tmp and renames it to `path`, so that a reader sees
/// either the old content or the new one. Removes the temporary file after an error.
Status replace_file(Files& files, const std::filesystem::path& path,
                    std::span<const std::span<const std::byte>> parts);
Status replace_file(Files& files, const std::filesystem::path& path, std::string_view text);

/// Reads a whole file. Errors: FILE_TOO_LARGE for more than `bytes_max` bytes, else file_error().
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
  /// Takes the pages of a part of bytes() out of this process's memory. Reading the part again
  /// reads it from the file, or from the system's cache of it.
  void drop_pages(std::span<const std::byte> part) const;

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trainyard
