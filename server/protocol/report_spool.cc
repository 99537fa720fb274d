#include "server/protocol/report_spool.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "src/base/crc32c.h"
#include "src/base/files.h"

namespace trainyard {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Header {
  uint32_t size = 0;
  uint32_t crc = 0;
};
constexpr uint32_t kReportBytesMax = 64 << 20;  // more than any report has

bool read_exactly(int fd, int64_t offset, void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = ::pread(fd, at, size, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    offset += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

std::optional<v1::WorkerReport> read_record(int fd, int64_t& offset) {
  Header header;
  if (!read_exactly(fd, offset, &header, sizeof header)) return std::nullopt;
  if (header.size > kReportBytesMax) return std::nullopt;
  std::string bytes(header.size, '\0');
  if (!read_exactly(fd, offset + static_cast<int64_t>(sizeof header), bytes.data(), bytes.size())) {
    return std::nullopt;
  }
  v1::WorkerReport report;
  if (crc32c(bytes) != header.crc || !report.ParseFromString(bytes)) return std::nullopt;
  offset += static_cast<int64_t>(sizeof header + bytes.size());
  return report;
}

}  // namespace

Result<ReportSpool> ReportSpool::create(std::filesystem::path path) {
  ReportSpool spool;
  spool.file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!spool.file_) return file_error("cannot create the spool of reports", path, errno);
  spool.path_ = std::move(path);
  return spool;
}

Status ReportSpool::append(const v1::WorkerReport& report) {
  const std::string bytes = report.SerializeAsString();
  const Header header{static_cast<uint32_t>(bytes.size()), crc32c(bytes)};
  std::string record(reinterpret_cast<const char*>(&header), sizeof header);
  record += bytes;
  if (bytes_ + std::ssize(record) > kBytesMax) {
    accepts_ = false;
    return make_error(
        ErrorCode::kResourceExhausted, "SPOOL_FULL",
        std::to_string(kBytesMax >> 20) + " MiB of reports wait for the daemon, the maximum");
  }
  ssize_t n;
  do {
    n = ::pwrite(file_.get(), record.data(), record.size(), bytes_);
  } while (n < 0 && errno == EINTR);
  if (n != std::ssize(record)) {
    const int err = n < 0 ? errno : ENOSPC;
    accepts_ = false;
    (void)!::ftruncate(file_.get(), bytes_);
    return file_error("cannot write", path_, err);
  }
  bytes_ += n;
  return {};
}

std::optional<v1::WorkerReport> ReportSpool::read_at(int64_t& offset) const {
  if (offset >= bytes_) return std::nullopt;
  return read_record(file_.get(), offset);
}

Status ReportSpool::keep(const std::deque<v1::WorkerReport>& reports) {
  std::filesystem::path beside = path_;
  beside += ".new";
  ASSIGN_OR_RETURN(ReportSpool fresh, create(beside));
  for (const v1::WorkerReport& report : reports) {
    if (Status s = fresh.append(report); !s.ok()) return s;
  }
  if (::rename(beside.c_str(), path_.c_str()) != 0)
    return file_error("cannot replace", path_, errno);
  fresh.path_ = path_;
  *this = std::move(fresh);
  return {};
}

Status ReportSpool::sync() {
  if (::fdatasync(file_.get()) != 0) return file_error("cannot sync", path_, errno);
  return local_files().sync_directory(path_.parent_path());
}

Result<SpoolReader> SpoolReader::open(const std::filesystem::path& path, int64_t after) {
  SpoolReader reader;
  reader.after_ = after;
  reader.file_.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reader.file_ && errno != ENOENT) {
    return file_error("cannot open the spool of reports", path, errno);
  }
  return reader;
}

std::optional<v1::WorkerReport> SpoolReader::next() {
  if (!file_) return std::nullopt;
  for (;;) {
    std::optional<v1::WorkerReport> report = read_record(file_.get(), offset_);
    if (!report || report->number() > after_) return report;
  }
}

}  // namespace trainyard
