// server/store/readers.h: a bounded set of read-only connections.
//
// A reader never writes to the store's files: it opens them read-only and checkpoints neither
// automatically nor at close. store.h says why that matters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "server/store/sqlite.h"
#include "src/base/mutex.h"

namespace trainyard::server {

class Readers {
 public:
  Readers(std::filesystem::path path, int32_t count_max, int64_t wait_ms, std::string vfs);

  /// Exclusive use of a connection, which the destructor returns.
  class Lease {
   public:
    Lease(Readers& readers, std::unique_ptr<Connection> db)
        : readers_(&readers), db_(std::move(db)) {}
    Lease(Lease&&) = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (db_) readers_->give_back(std::move(db_));
    }
    Connection& operator*() { return *db_; }

   private:
    Readers* readers_;
    std::unique_ptr<Connection> db_;
  };
  /// Waits at most `wait_ms` while all connections are in use. Error after that:
  /// UNAVAILABLE/STORE_BUSY.
  Result<Lease> take();

 private:
  void give_back(std::unique_ptr<Connection> db);
  void forget_one();

  const std::filesystem::path path_;
  const int32_t count_max_;
  const int64_t wait_ms_;
  const std::string vfs_;
  Mutex mu_;
  CondVar returned_;
  std::vector<std::unique_ptr<Connection>> idle_ TRAINYARD_GUARDED_BY(mu_);
  int32_t count_ TRAINYARD_GUARDED_BY(mu_) = 0;  // the number of open connections, idle and leased
};

}  // namespace trainyard::server
