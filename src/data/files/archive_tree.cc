#include "src/data/files/archive_tree.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "src/base/handle.h"
#include "src/base/text.h"
#include "src/data/files/byte_source.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

using ArchiveHandle = Handle<archive, archive_read_free>;
constexpr size_t kBlockBytes = size_t{64} << 10;
constexpr int64_t kTarBlockBytes = 512;

Error unsafe(const std::string& place, std::string description) {
  return field_error("ARCHIVE_UNSAFE", place, std::move(description));
}

/// The normalized path of an archive's entry. `wrong` describes why it is unsafe; null if it is
/// safe.
struct EntryPath {
  std::string path;
  bool ignored = false;
  const char* wrong = nullptr;
};

EntryPath clean_path(std::string_view given) {
  EntryPath result;
  if (given.starts_with('/')) result.wrong = "an absolute path, expected one within the archive";
  if (given.find('\\') != std::string_view::npos) result.wrong = "a path with a backslash";
  if (given.size() > kTreePathBytesMax) result.wrong = "a path that is too long";
  int64_t depth = 0;
  while (!given.empty() && result.wrong == nullptr) {
    const size_t end = std::min(given.find('/'), given.size());
    const std::string_view part = given.substr(0, end);
    given.remove_prefix(std::min(end + 1, given.size()));
    if (part.empty() || part == ".") continue;
    if (part == "..") result.wrong = "a path that leaves the archive ('..')";
    if (++depth > kTreeDepthMax) result.wrong = "a path of too many folders";
    result.ignored |= is_ignored_name(part);
    if (!result.path.empty()) result.path += '/';
    result.path += part;
  }
  return result;
}

class ArchiveTree final : public FileTree {
 public:
  ArchiveTree(UniqueFd fd, int64_t bytes, std::string what)
      : fd_(std::move(fd)),
        content_max_(std::max(kArchiveContentMin, bytes > INT64_MAX / kArchiveRatioMax
                                                      ? INT64_MAX
                                                      : bytes * kArchiveRatioMax)),
        what_(std::move(what)) {}

  Status rewind() override {
    archive_.reset(archive_read_new());
    if (!archive_) throw std::bad_alloc();
    archive* a = archive_.get();
    entries_ = 0;
    content_bytes_ = 0;
    // Only filters that libarchive implements itself are accepted: for others it starts a program.
    for (const auto support : {archive_read_support_filter_gzip, archive_read_support_filter_xz,
                               archive_read_support_filter_zstd}) {
      TRAINYARD_CHECK(support(a) == ARCHIVE_OK, "libarchive reads gzip, xz and zstd itself");
    }
    TRAINYARD_CHECK(archive_read_support_format_tar(a) == ARCHIVE_OK &&
                        archive_read_support_format_zip_seekable(a) == ARCHIVE_OK,
                    "libarchive reads tar and zip");
    if (::lseek(fd_.get(), 0, SEEK_SET) != 0) {
      return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                        what_ + ": cannot read the file: " + std::strerror(errno));
    }
    if (archive_read_open_fd(a, fd_.get(), kBlockBytes) != ARCHIVE_OK) return damaged(what_);
    if (archive_filter_count(a) > 2) {  // the last filter is the file itself
      return unsafe(what_, "compressed more than once");
    }
    return {};
  }

  Result<bool> next() override {
    for (;;) {
      ASSIGN_OR_RETURN(const bool more, next_entry());
      if (!more) return false;
      if (!path_.empty()) return true;
    }
  }

  const std::string& path() const override { return path_; }

  std::vector<std::string> empty_folders() const override {
    std::vector<std::string> empty;
    std::ranges::set_difference(folders_, filled_folders_, std::back_inserter(empty));
    return empty;
  }

  Result<bool> read(std::string& out, size_t bytes_max) override {
    // Reads through a buffer, so that `out` does not allocate a whole block for a small file.
    while (out.size() < bytes_max) {
      const la_ssize_t n = archive_read_data(archive_.get(), block_.data(),
                                             std::min(bytes_max - out.size(), block_.size()));
      if (n < 0) return damaged(place());
      out.append(block_.data(), static_cast<size_t>(n));
      content_bytes_ += n;
      if (Status s = check_content(); !s.ok()) return std::move(s).error();
      if (n == 0) return false;
    }
    return true;
  }

 private:
  /// Moves to the next entry of any kind. Leaves path_ empty for an entry that must be skipped.
  Result<bool> next_entry() {
    archive* a = archive_.get();
    // Skipping an entry decompresses it. Its size was checked against the limit before.
    if (entries_ > 0 && archive_read_data_skip(a) < ARCHIVE_WARN) return damaged(place());
    if (Status s = check_content(); !s.ok()) return std::move(s).error();
    const int64_t after = archive_filter_bytes(a, 0);
    path_.clear();
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(a, &entry);
    if (result == ARCHIVE_EOF) return at_end(after);
    if (result < ARCHIVE_WARN) return damaged(what_);
    if (++entries_ > kTreeFilesMax) {
      return unsafe(what_, "more than " + std::to_string(kTreeFilesMax) + " entries");
    }
    // In the locale "C", libarchive returns names that are marked as UTF-8 only through this
    // function, and names of unknown encoding only through the other one.
    const char* name = archive_entry_pathname_utf8(entry);
    if (name == nullptr) name = archive_entry_pathname(entry);
    if (name == nullptr) return dataset_error(what_, "an entry has a name that cannot be read");
    const std::string given = name;
    const EntryPath clean = clean_path(given);
    const std::string where = place_in_tree(what_, given);
    if (clean.wrong != nullptr) return unsafe(where, clean.wrong);
    const auto type = archive_entry_filetype(entry);
    if (type != AE_IFDIR && (type != AE_IFREG || archive_entry_hardlink(entry) != nullptr ||
                             archive_entry_sparse_count(entry) > 0)) {
      return unsafe(where, "a link, a device or a file with holes, expected files and folders");
    }
    if (archive_entry_is_encrypted(entry) > 0) {
      return dataset_error(where, "encrypted, expected an archive without a password");
    }
    if (archive_entry_size_is_set(entry) && archive_entry_size(entry) > content_max_) {
      return too_much(where);
    }
    if (clean.ignored) return true;
    if (type == AE_IFREG) path_ = clean.path;
    note_folders(clean.path, type == AE_IFDIR);
    return true;
  }

  void note_folders(std::string_view path, bool folder) {
    if (folder && !path.empty()) folders_.emplace(path);
    const size_t slash = path.rfind('/');
    if (slash != path.npos) filled_folders_.emplace(path.substr(0, slash));
  }

  /// Refuses a tar without the block of zeros at its end: it was truncated between two entries.
  Result<bool> at_end(int64_t after_last_entry) {
    const int format = archive_format(archive_.get()) & ARCHIVE_FORMAT_BASE_MASK;
    if (format == ARCHIVE_FORMAT_TAR &&
        archive_filter_bytes(archive_.get(), 0) - after_last_entry < kTarBlockBytes) {
      return dataset_error(what_, "the archive is cut short: its end mark is missing");
    }
    return false;
  }

  Status check_content() const {
    if (std::max(content_bytes_, archive_filter_bytes(archive_.get(), 0)) <= content_max_) {
      return {};
    }
    return too_much(place());
  }
  Error too_much(const std::string& where) const {
    return unsafe(where, "the archive's content is larger than " + human_bytes(content_max_) +
                             ", " + std::to_string(kArchiveRatioMax) + " times the archive");
  }
  std::string place() const { return place_in_tree(what_, path_); }
  Error damaged(const std::string& where) const {
    const char* why = archive_error_string(archive_.get());
    return dataset_error(where, std::string("the archive is cut short, damaged or neither tar nor "
                                            "zip") +
                                    (why == nullptr ? "" : " (" + std::string(why) + ")"));
  }

  UniqueFd fd_;
  const int64_t content_max_;
  const std::string what_;
  ArchiveHandle archive_;  // reads fd_, so it must be destroyed first
  std::vector<char> block_ = std::vector<char>(kBlockBytes);
  std::string path_;
  std::set<std::string> folders_;         // that have an entry of their own
  std::set<std::string> filled_folders_;  // that directly contain a file or a folder
  int64_t entries_ = 0;
  // Bytes that read() returned. Needed for zip, for which libarchive counts compressed bytes only.
  int64_t content_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<FileTree>> open_archive_tree(const std::filesystem::path& path,
                                                    const std::string& what) {
  ASSIGN_OR_RETURN(RegularFile file,
                   open_regular_file(path, what, "neither a folder nor a regular file"));
  auto tree = std::make_unique<ArchiveTree>(std::move(file.fd), file.bytes, what);
  if (Status s = tree->rewind(); !s.ok()) return std::move(s).error();
  return tree;
}

}  // namespace trainyard
