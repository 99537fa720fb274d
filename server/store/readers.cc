#include "server/store/readers.h"

#include <chrono>
#include <utility>

#include "src/base/check.h"
#include "src/base/mutex.h"

namespace trainyard::server {

Readers::Readers(std::filesystem::path path, int32_t count_max, int64_t wait_ms, std::string vfs)
    : path_(std::move(path)), count_max_(count_max), wait_ms_(wait_ms), vfs_(std::move(vfs)) {}

Result<Readers::Lease> Readers::take() {
  {
    MutexLock lock(mu_);
    const bool free = returned_.wait_for(
        lock, std::chrono::milliseconds(wait_ms_),
        [&]() TRAINYARD_REQUIRES(mu_) { return !idle_.empty() || count_ < count_max_; });
    if (!free)
      return make_error(ErrorCode::kUnavailable, "STORE_BUSY",
                        "The server's store has too many readers: try again.");
    if (!idle_.empty()) {
      Lease lease(*this, std::move(idle_.back()));
      idle_.pop_back();
      return lease;
    }
    ++count_;  // the connection is opened outside of the lock
  }
  try {
    auto db = std::make_unique<Connection>(path_, Connection::Mode::kReadOnly, wait_ms_,
                                           vfs_.empty() ? nullptr : vfs_.c_str());
    db->execute("PRAGMA query_only = ON; PRAGMA cache_size = -1024;");
    return Lease(*this, std::move(db));
  } catch (const SqliteError& e) {
    forget_one();
    return to_error(e);
  } catch (...) {
    forget_one();
    throw;
  }
}

void Readers::give_back(std::unique_ptr<Connection> db) {
  {
    const MutexLock lock(mu_);
    idle_.push_back(std::move(db));
  }
  returned_.notify_one();
}

void Readers::forget_one() {
  {
    const MutexLock lock(mu_);
    TRAINYARD_CHECK(count_ > 0, "more readers are closed than were opened");
    --count_;
  }
  returned_.notify_one();
}

}  // namespace trainyard::server
