// server/handlers/open_streams.h: the streams that may be quiet for long. When a token is revoked
// or a role goes, they check at once whether they may go on, instead of before their next message.
// Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "src/base/mutex.h"

namespace trainyard::server {

class OpenStream {
 public:
  virtual ~OpenStream() = default;
  /// Ends the stream if its caller may no longer have it.
  virtual void check_access() = 0;
};

class OpenStreams {
 public:
  /// Keeps no stream alive; a stream that has ended needs no removal.
  void add(std::weak_ptr<OpenStream> stream) {
    const MutexLock lock(mu_);
    if (streams_.size() >= next_cleanup_) {
      std::erase_if(streams_, [](const auto& known) { return known.expired(); });
      next_cleanup_ = 2 * streams_.size() + kLeastCleanup;
    }
    streams_.push_back(std::move(stream));
  }

  void check_all() {
    std::vector<std::weak_ptr<OpenStream>> streams;
    {
      const MutexLock lock(mu_);
      streams = streams_;
    }
    for (const std::weak_ptr<OpenStream>& known : streams) {
      if (const std::shared_ptr<OpenStream> stream = known.lock()) stream->check_access();
    }
  }

 private:
  static constexpr size_t kLeastCleanup = 64;
  Mutex mu_;
  std::vector<std::weak_ptr<OpenStream>> streams_ TRAINYARD_GUARDED_BY(mu_);
  size_t next_cleanup_ TRAINYARD_GUARDED_BY(mu_) = kLeastCleanup;
};

}  // namespace trainyard::server
