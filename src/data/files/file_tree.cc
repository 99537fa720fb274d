#include "src/data/files/file_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "src/base/folder_files.h"
#include "src/base/handle.h"
#include "src/base/text.h"
#include "src/data/files/archive_tree.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

namespace fs = std::filesystem;

Error storage_error(const std::string& place, const std::string& doing, int error) {
  return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                    place + ": cannot " + doing + ": " + std::strerror(error));
}

class FolderTree final : public FileTree {
 public:
  FolderTree(fs::path root, FolderListing listing, std::string what)
      : root_(std::move(root)), what_(std::move(what)), listing_(std::move(listing)) {}

  Result<bool> next() override {
    file_.reset();
    if (next_ == listing_.files.size()) return false;
    ++next_;
    return true;
  }
  const std::string& path() const override { return listing_.files[next_ - 1]; }
  Result<bool> read(std::string& out, size_t bytes_max) override {
    if (!file_) {
      file_.reset(::open((root_ / path()).c_str(), O_RDONLY | O_CLOEXEC));
      if (!file_) return storage_error(place_in_tree(what_, path()), "open the file", errno);
    }
    // Reads through a buffer, so that `out` never allocates more than the file's size.
    while (out.size() < bytes_max) {
      const ssize_t n =
          ::read(file_.get(), piece_.data(), std::min(bytes_max - out.size(), piece_.size()));
      const int read_error = errno;
      if (n < 0 && read_error == EINTR) continue;
      if (n < 0) return storage_error(place_in_tree(what_, path()), "read the file", read_error);
      if (n == 0) return false;
      out.append(piece_.data(), static_cast<size_t>(n));
    }
    return true;
  }
  std::vector<std::string> empty_folders() const override { return listing_.empty_folders; }
  Status rewind() override {
    file_.reset();
    next_ = 0;
    return {};
  }

 private:
  static constexpr size_t kPieceBytes = size_t{256} << 10;
  const fs::path root_;
  const std::string what_;
  const FolderListing listing_;
  size_t next_ = 0;
  UniqueFd file_;
  std::vector<char> piece_ = std::vector<char>(kPieceBytes);
};

}  // namespace

std::string place_in_tree(const std::string& what, const std::string& path) {
  return path.empty() ? what : what + ": " + quoted_value(path);
}

Result<std::unique_ptr<FileTree>> open_file_tree(const fs::path& path, const std::string& what) {
  std::error_code ec;
  if (!fs::is_directory(path, ec)) return open_archive_tree(path, what);
  ASSIGN_OR_RETURN(FolderListing listing, list_folder(path, what));
  return std::make_unique<FolderTree>(path, std::move(listing), what);
}

Result<std::string> read_tree_file(FileTree& tree, size_t bytes_max, const std::string& place) {
  std::string bytes;
  ASSIGN_OR_RETURN(const bool more, tree.read(bytes, bytes_max + 1));
  if (more) {
    return dataset_error(
        place, "larger than the accepted " + human_bytes(static_cast<int64_t>(bytes_max)));
  }
  return bytes;
}

}  // namespace trainyard
