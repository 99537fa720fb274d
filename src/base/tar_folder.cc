#include "src/base/tar_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "src/base/folder_files.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr int64_t kBlock = 512;
constexpr size_t kNameBytes = 100;
constexpr size_t kPrefixBytes = 155;
constexpr int64_t kFileBytesMax = (int64_t{1} << 33) - 1;  // the header has 11 octal digits for it

int64_t padding(int64_t bytes) { return (kBlock - bytes % kBlock) % kBlock; }

std::string octal(int64_t value, int digits) {
  char text[24];
  std::snprintf(text, sizeof text, "%0*llo", digits, static_cast<unsigned long long>(value));
  return text;
}

/// Returns one ustar header block. `name` and `prefix` must fit their fields.
std::string block(const std::string& name, const std::string& prefix, int64_t bytes, char type) {
  std::string b(kBlock, '\0');
  const auto put = [&](size_t at, const std::string& text) { b.replace(at, text.size(), text); };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, octal(bytes, 11));
  put(136, octal(0, 11));
  put(148, "        ");  // the checksum is computed with its own field filled with blanks
  b[156] = type;
  put(257, std::string("ustar\0"
                       "00",
                       8));
  put(345, prefix);
  int64_t sum = 0;
  for (const char c : b) sum += static_cast<unsigned char>(c);
  put(148, octal(sum, 6) + std::string("\0 ", 2));
  return b;
}

/// Returns a record of a pax header, such as "12 path=a/b\n". It begins with its own length in
/// bytes.
std::string pax_record(const std::string& path) {
  const std::string rest = " path=" + path + "\n";
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

}  // namespace

std::string tar_header(const std::string& path, int64_t bytes) {
  const char type = path.ends_with('/') ? '5' : '0';  // a folder or a file
  if (path.size() <= kNameBytes) return block(path, "", bytes, type);
  // The prefix ends at the first '/' after which the rest fits into the name's field.
  const size_t slash = path.find('/', path.size() - kNameBytes - 1);
  if (slash != std::string::npos && slash <= kPrefixBytes && slash > 0 && slash + 1 < path.size()) {
    return block(path.substr(slash + 1), path.substr(0, slash), bytes, type);
  }
  const std::string record = pax_record(path);
  return block("pax", "", std::ssize(record), 'x') + record +
         std::string(static_cast<size_t>(padding(std::ssize(record))), '\0') +
         block("pax", "", bytes, type);
}

Result<TarFolder> TarFolder::open(const std::filesystem::path& folder) {
  TarFolder tar(folder);
  ASSIGN_OR_RETURN(FolderListing listing, list_folder(folder, folder.string()));
  if (listing.files.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "DATASET_INVALID",
                      folder.string() + ": there are no files in the folder");
  }
  std::vector<std::string> paths = std::move(listing.files);
  for (const std::string& empty : listing.empty_folders) paths.push_back(empty + "/");
  std::ranges::sort(paths);
  for (const std::string& path : paths) {
    std::error_code failed;
    const int64_t bytes =
        path.ends_with('/')
            ? 0
            : static_cast<int64_t>(std::filesystem::file_size(folder / path, failed));
    if (failed || bytes > kFileBytesMax) {
      return make_error(
          ErrorCode::kInvalidArgument, "DATASET_INVALID",
          (folder / path).string() + (failed ? ": " + failed.message() : ": larger than 8 GiB"));
    }
    tar.parts_.push_back({tar.size_, path, bytes});
    tar.size_ += std::ssize(tar_header(path, bytes)) + bytes + padding(bytes);
  }
  tar.size_ += 2 * kBlock;
  return tar;
}

Status TarFolder::read(int64_t offset, int64_t count, std::string& out) {
  TRAINYARD_CHECK(offset >= 0 && count >= 0 && count <= size_ - offset, "within the archive");
  auto at = std::upper_bound(parts_.begin(), parts_.end(), offset,
                             [](int64_t o, const Part& part) { return o < part.begin; });
  for (size_t i = static_cast<size_t>(at - parts_.begin()) - 1; count > 0 && i < parts_.size();
       ++i) {
    const Part& part = parts_[i];
    int64_t within = offset - part.begin;
    const auto take = [&](int64_t length) {  // how many of the next `length` bytes are requested
      const int64_t n = std::clamp<int64_t>(length - within, 0, count);
      return n;
    };
    const auto took = [&](int64_t length, int64_t n) {
      within = std::max<int64_t>(0, within - length);
      offset += n;
      count -= n;
    };
    const std::string header = tar_header(part.path, part.file_bytes);
    int64_t n = take(std::ssize(header));
    if (n > 0) out.append(header, static_cast<size_t>(within), static_cast<size_t>(n));
    took(std::ssize(header), n);
    n = take(part.file_bytes);
    if (n > 0) {
      if (Status s = read_file(i, within, n, out); !s.ok()) return s;
    }
    took(part.file_bytes, n);
    n = take(padding(part.file_bytes));
    out.append(static_cast<size_t>(n), '\0');
    took(padding(part.file_bytes), n);
  }
  out.append(static_cast<size_t>(count), '\0');  // the end of the archive: two zero blocks
  return {};
}

Status TarFolder::read_file(size_t part, int64_t offset, int64_t count, std::string& out) {
  const std::filesystem::path path = folder_ / parts_[part].path;
  const auto refuse = [&](const std::string& why) {
    return make_error(ErrorCode::kInvalidArgument, "DATASET_INVALID", path.string() + ": " + why);
  };
  if (open_part_ != part) {
    file_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file_) return refuse(std::string("cannot open the file: ") + std::strerror(errno));
    open_part_ = part;
  }
  const size_t begin = out.size();
  out.resize(begin + static_cast<size_t>(count));
  for (int64_t done = 0; done < count;) {
    const ssize_t n = ::pread(file_.get(), out.data() + begin + done,
                              static_cast<size_t>(count - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return refuse("the file became shorter while it was read");
    done += n;
  }
  return {};
}

}  // namespace trainyard
