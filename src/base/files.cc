#include "src/base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "src/base/handle.h"

namespace trainyard {

Error file_error(std::string_view what, const std::filesystem::path& path, int err) {
  const bool full = err == ENOSPC || err == EDQUOT || err == EFBIG;
  const ErrorCode code = full            ? ErrorCode::kResourceExhausted
                         : err == ENOENT ? ErrorCode::kNotFound
                         : err == EACCES ? ErrorCode::kPermissionDenied
                                         : ErrorCode::kUnavailable;
  const char* reason = full            ? "STORAGE_FULL"
                       : err == ENOENT ? "FILE_NOT_FOUND"
                       : err == EACCES ? "FILE_ACCESS_DENIED"
                                       : "STORAGE_ERROR";
  return make_error(code, reason,
                    std::string(what) + " " + path.string() + ": " + std::strerror(err));
}

bool is_of_file_error(std::string_view reason) {
  return reason == "STORAGE_FULL" || reason == "FILE_NOT_FOUND" || reason == "FILE_ACCESS_DENIED" ||
         reason == "STORAGE_ERROR";
}

namespace {

class LocalFiller final : public FileFiller {
 public:
  LocalFiller(UniqueFd fd, std::filesystem::path path)
      : fd_(std::move(fd)), path_(std::move(path)) {}
  Status write_at(int64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return file_error("cannot write", path_, errno);
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += n;
    }
    return {};
  }
  Status finish() override {
    if (::fsync(fd_.get()) != 0) return file_error("cannot fsync", path_, errno);
    return {};
  }

 private:
  UniqueFd fd_;
  std::filesystem::path path_;
};

class LocalFiles final : public Files {
 public:
  explicit LocalFiles(mode_t mode) : mode_(mode) {}
  Status write_file(const std::filesystem::path& path,
                    std::span<const std::span<const std::byte>> parts) override {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode_));
    if (!fd) return file_error("cannot create", path, errno);
    for (std::span<const std::byte> part : parts) {
      while (!part.empty()) {
        const ssize_t n = ::write(fd.get(), part.data(), part.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_error("cannot write", path, errno);
        part = part.subspan(static_cast<size_t>(n));
      }
    }
    // A failed fsync may have dropped the pages: the caller must write a fresh file, never retry
    // this one.
    if (::fsync(fd.get()) != 0) return file_error("cannot fsync", path, errno);
    return {};
  }

  Result<std::unique_ptr<FileFiller>> create_file(const std::filesystem::path& path,
                                                  int64_t bytes) override {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode_));
    if (!fd) return file_error("cannot create", path, errno);
    // posix_fallocate() is not used, since it writes every block if the file system has no
    // fallocate operation.
    if (bytes > 0 && ::fallocate(fd.get(), 0, 0, bytes) != 0 &&
        (errno != EOPNOTSUPP || ::ftruncate(fd.get(), bytes) != 0)) {
      return file_error("cannot allocate space for", path, errno);
    }
    return std::make_unique<LocalFiller>(std::move(fd), path);
  }

  Status rename_durable(const std::filesystem::path& from,
                        const std::filesystem::path& to) override {
    if (std::rename(from.c_str(), to.c_str()) != 0) return file_error("cannot rename", to, errno);
    return sync_directory(to.parent_path());
  }

  Status sync_directory(const std::filesystem::path& directory) override {
    UniqueFd fd(
        ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return file_error("cannot open directory", directory, errno);
    if (::fsync(fd.get()) != 0) return file_error("cannot fsync directory", directory, errno);
    return {};
  }

  Status create_directories(const std::filesystem::path& directory) override {
    std::error_code ec;
    std::filesystem::create_directories(directory, ec);
    if (ec) return file_error("cannot create directory", directory, ec.value());
    return {};
  }

  Status link_file(const std::filesystem::path& from, const std::filesystem::path& to) override {
    if (::link(from.c_str(), to.c_str()) != 0) return file_error("cannot link", from, errno);
    return {};
  }

  Status remove_all(const std::filesystem::path& path) override {
    std::error_code ec;
    std::filesystem::remove_all(path, ec);
    if (ec) return file_error("cannot remove", path, ec.value());
    return {};
  }

 private:
  const mode_t mode_;
};

}  // namespace

Files& local_files() {
  static LocalFiles files(0640);
  return files;
}

Files& user_files() {
  static LocalFiles files(0666);
  return files;
}

Status replace_file(Files& files, const std::filesystem::path& path,
                    std::span<const std::span<const std::byte>> parts) {
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  Status s = files.write_file(temporary, parts);
  if (s.ok()) s = files.rename_durable(temporary, path);
  if (!s.ok()) (void)files.remove_all(temporary);
  return s;
}

Status replace_file(Files& files, const std::filesystem::path& path, std::string_view text) {
  const std::span<const std::byte> part = std::as_bytes(std::span(text.data(), text.size()));
  return replace_file(files, path, std::span(&part, 1));
}

Result<std::string> read_file(const std::filesystem::path& path, int64_t bytes_max) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return file_error("cannot open", path, errno);
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return file_error("cannot stat", path, errno);
  if (S_ISDIR(st.st_mode)) return file_error("cannot read", path, EISDIR);
  const auto too_large = [&] {
    return make_error(
        ErrorCode::kInvalidArgument, "FILE_TOO_LARGE",
        path.string() + " is larger than the accepted " + std::to_string(bytes_max) + " bytes");
  };
  if (st.st_size > bytes_max) return too_large();
  std::string text;
  char chunk[64 * 1024];
  for (;;) {  // until the end of the file: pipes and files of /proc report st_size 0
    const ssize_t n = ::read(fd.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("cannot read", path, errno);
    if (n == 0) return text;
    text.append(chunk, static_cast<size_t>(n));
    if (static_cast<int64_t>(text.size()) > bytes_max) return too_large();
  }
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return file_error("cannot open", path, errno);
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return file_error("cannot stat", path, errno);
  if (!S_ISREG(st.st_mode)) return file_error("cannot map", path, EINVAL);
  MappedFile file;
  file.size_ = static_cast<size_t>(st.st_size);
  if (file.size_ == 0) return file;
  void* p = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (p == MAP_FAILED) return file_error("cannot map", path, errno);
  file.data_ = p;
  return file;
}

MappedFile::MappedFile(MappedFile&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  return *this;
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data()), end = begin + part.size();
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace trainyard
