#include "src/data/files/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "src/base/handle.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

constexpr std::string_view kGzipMagic = "\x1f\x8b";
// Deflate encodes at most 258 bytes in 2 bits; zlib's documentation states a ratio of 1032:1.
constexpr int64_t kDeflateRatioMax = 1032;

class FileSource final : public ByteSource {
 public:
  FileSource(UniqueFd fd, int64_t size, std::string what)
      : fd_(std::move(fd)), size_(size), what_(std::move(what)) {}
  Result<size_t> read(std::span<char> out) override {
    for (;;) {
      const ssize_t n = ::read(fd_.get(), out.data(), out.size());
      if (n >= 0) return static_cast<size_t>(n);
      if (errno != EINTR) {
        return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                          what_ + ": cannot read the file: " + std::strerror(errno));
      }
    }
  }
  int64_t bytes_max() const override { return size_; }
  bool compressed() const override { return false; }

 private:
  UniqueFd fd_;
  int64_t size_;
  std::string what_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string_view bytes)
      : bytes_(bytes), size_(static_cast<int64_t>(bytes.size())) {}
  Result<size_t> read(std::span<char> out) override {
    const size_t n = std::min(out.size(), bytes_.size());
    std::copy_n(bytes_.data(), n, out.data());
    bytes_.remove_prefix(n);
    return n;
  }
  int64_t bytes_max() const override { return size_; }
  bool compressed() const override { return false; }

 private:
  std::string_view bytes_;
  int64_t size_;
};

/// Decompresses gzip, also several members one after another, as `cat a.gz b.gz` writes them.
class GzipSource final : public ByteSource {
 public:
  GzipSource(std::unique_ptr<ByteSource> inner, std::string what)
      : inner_(std::move(inner)), what_(std::move(what)), input_(size_t{256} << 10) {
    TRAINYARD_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, "zlib cannot start");
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  Result<size_t> read(std::span<char> out) override {
    out = out.first(std::min(out.size(), size_t{1} << 30));  // zlib counts in 32 bits
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out == out.size()) {
      if (stream_.avail_in == 0) {
        ASSIGN_OR_RETURN(const size_t n, inner_->read(input_));
        if (n == 0 && between_members_) return size_t{0};
        if (n == 0) return dataset_error(what_, "the gzip data is cut short");
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(n);
      }
      between_members_ = false;
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        between_members_ = true;
        TRAINYARD_CHECK(inflateReset(&stream_) == Z_OK, "zlib failed");
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return dataset_error(
            what_, std::string("the gzip data is damaged") +
                       (stream_.msg == nullptr ? "" : " (" + std::string(stream_.msg) + ")"));
      }
    }
    return out.size() - stream_.avail_out;
  }
  int64_t bytes_max() const override {
    return inner_->bytes_max() > INT64_MAX / kDeflateRatioMax
               ? INT64_MAX
               : inner_->bytes_max() * kDeflateRatioMax;
  }
  bool compressed() const override { return true; }

 private:
  std::unique_ptr<ByteSource> inner_;
  std::string what_;
  std::vector<char> input_;
  z_stream stream_{};
  bool between_members_ = false;
};

std::unique_ptr<ByteSource> decompressed(std::unique_ptr<ByteSource> source, std::string_view start,
                                         const std::string& what) {
  if (!start.starts_with(kGzipMagic)) return source;
  return std::make_unique<GzipSource>(std::move(source), what);
}

}  // namespace

Result<RegularFile> open_regular_file(const std::filesystem::path& path, const std::string& what,
                                      const std::string& otherwise) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const int open_error = errno;
  if (!fd) {
    return make_error(open_error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                      open_error == ENOENT ? "FILE_NOT_FOUND" : "STORAGE_ERROR",
                      what + ": cannot open the file: " + std::strerror(open_error));
  }
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) {
    return dataset_error(what, otherwise);
  }
  return RegularFile{std::move(fd), st.st_size};
}

Result<std::unique_ptr<ByteSource>> open_file_source(const std::filesystem::path& path,
                                                     const std::string& what) {
  ASSIGN_OR_RETURN(RegularFile file, open_regular_file(path, what, "not a regular file"));
  char start[2] = {};
  const ssize_t n = ::pread(file.fd.get(), start, sizeof start, 0);
  return decompressed(std::make_unique<FileSource>(std::move(file.fd), file.bytes, what),
                      {start, n > 0 ? static_cast<size_t>(n) : 0}, what);
}

std::unique_ptr<ByteSource> open_memory_source(std::string_view bytes, const std::string& what) {
  return decompressed(std::make_unique<MemorySource>(bytes), bytes.substr(0, 2), what);
}

std::unique_ptr<ByteSource> open_plain_source(std::string_view bytes) {
  return std::make_unique<MemorySource>(bytes);
}

Result<size_t> read_full(ByteSource& source, std::span<char> out) {
  size_t done = 0;
  while (done < out.size()) {
    ASSIGN_OR_RETURN(const size_t n, source.read(out.subspan(done)));
    if (n == 0) break;
    done += n;
  }
  return done;
}

Status read_promised(ByteSource& source, const PromisedBytes& promise, const std::string& what,
                     const std::function<char*(int64_t bytes)>& grow) {
  const int64_t bytes = promise.bytes;
  const int64_t rest_max = source.bytes_max() - promise.header_bytes;
  if (bytes > rest_max) {
    return dataset_error(what, promise.text +
                                   (source.compressed() ? ", but the file cannot contain more than "
                                                        : ", but there are only ") +
                                   std::to_string(rest_max));
  }
  constexpr int64_t kFirstBytes = int64_t{64} << 20;
  int64_t done = 0;
  while (done < bytes) {
    const int64_t next =
        std::min(bytes, source.compressed() ? std::max(2 * done, kFirstBytes) : bytes);
    const std::span<char> space(grow(next) + done, static_cast<size_t>(next - done));
    ASSIGN_OR_RETURN(const size_t n, read_full(source, space));
    done += static_cast<int64_t>(n);
    if (n < space.size()) {
      return dataset_error(what, promise.text + ", but there are only " + std::to_string(done));
    }
  }
  char more = 0;
  ASSIGN_OR_RETURN(const size_t extra, source.read(std::span(&more, 1)));
  if (extra > 0) return dataset_error(what, promise.text + ", but the file has more");
  return {};
}

}  // namespace trainyard
