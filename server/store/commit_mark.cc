#include "server/store/commit_mark.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "src/base/crc32c.h"
#include "src/base/files.h"

namespace trainyard::server {
namespace {

// The file has two records, each in a sector of its own, which are written alternately. So one of
// them is intact at every instant.
constexpr int64_t kRecordBytes = 512;
constexpr size_t kFileBytes = 2 * kRecordBytes;

std::string record_of(int64_t number) {
  std::string text = "trainyard commit " + std::to_string(number) + " ";
  char digest[16];
  std::snprintf(digest, sizeof digest, "%08x\n", static_cast<unsigned>(crc32c(text)));
  text += digest;
  text.resize(kRecordBytes, '\0');
  return text;
}

std::optional<int64_t> parse_record(std::string_view record) {
  constexpr std::string_view kHead = "trainyard commit ";
  if (!record.starts_with(kHead)) return std::nullopt;
  int64_t number = 0;
  const char* const end = record.data() + record.size();
  const auto [stop, error] = std::from_chars(record.data() + kHead.size(), end, number);
  if (error != std::errc() || number < 0 || record != record_of(number)) return std::nullopt;
  return number;
}

}  // namespace

Result<std::optional<int64_t>> CommitMark::read(const std::filesystem::path& path) {
  std::error_code ec;
  if (!std::filesystem::exists(path, ec) && !ec) return std::optional<int64_t>();
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kFileBytes));
  std::optional<int64_t> newest;
  for (size_t at = 0; at + kRecordBytes <= text.size(); at += kRecordBytes) {
    const auto number = parse_record(std::string_view(text).substr(at, kRecordBytes));
    if (number && (!newest || *number > *newest)) newest = number;
  }
  if (newest) return newest;
  return make_error(ErrorCode::kDataLoss, "STORE_MARK_DAMAGED",
                    path.string() +
                        " is damaged: it counts the commits of the store, so that a damaged log is "
                        "noticed; remove it to continue without this check");
}

Result<CommitMark> CommitMark::open(const std::filesystem::path& path, int64_t number) {
  std::string text = record_of(number);
  text += record_of(number);
  if (Status s = replace_file(local_files(), path, text); !s.ok()) return s.error();
  CommitMark mark;
  mark.fd_.reset(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!mark.fd_) {
    return make_error(ErrorCode::kUnavailable, "STORAGE_ERROR",
                      "cannot open " + path.string() + ": " + std::strerror(errno));
  }
  return mark;
}

bool CommitMark::write(int64_t number) {
  if (!fd_) return true;
  const std::string record = record_of(number);
  synced_ = false;
  return ::pwrite(fd_.get(), record.data(), record.size(), number % 2 * kRecordBytes) ==
         static_cast<ssize_t>(record.size());
}

bool CommitMark::sync() {
  if (synced_ || !fd_) return true;
  synced_ = true;
  return ::fdatasync(fd_.get()) == 0;
}

}  // namespace trainyard::server
