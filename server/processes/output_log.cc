#include "server/processes/output_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace trainyard::server {

bool OutputLog::drain(int fd) {
  constexpr int kReadsMax = 4;
  static thread_local char chunk[64 * 1024];
  for (int i = 0; i < kReadsMax; ++i) {
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    append(std::string_view(chunk, static_cast<size_t>(n)));
  }
  return true;
}

void OutputLog::append(std::string_view text) {
  bytes_ += static_cast<int64_t>(text.size());
  tail_.append(text);
  if (tail_.size() > kTailBytesMax) tail_.erase(0, tail_.size() - kTailBytesMax);
  if (broken_) return;
  if (file_ && file_bytes_ + static_cast<int64_t>(text.size()) > kFileBytesMax) {
    file_.reset();
    std::filesystem::path older = path_;
    older += ".1";
    (void)std::rename(path_.c_str(), older.c_str());
    file_bytes_ = 0;
  }
  if (!file_) {
    file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    static constexpr std::string_view kMarker = "[older output is in the .1 file or was dropped]\n";
    if (bytes_ > static_cast<int64_t>(text.size())) {
      (void)!::write(file_.get(), kMarker.data(), kMarker.size());
    }
  }
  const ssize_t n = ::write(file_.get(), text.data(), text.size());
  broken_ = n != static_cast<ssize_t>(text.size());
  file_bytes_ += n;
}

}  // namespace trainyard::server
