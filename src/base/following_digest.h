// src/base/following_digest.h: the SHA-256 of bytes that become known one after another, by a
// thread of its own that follows: at the end there is little left to read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "src/base/mutex.h"
#include "src/base/result.h"
#include "src/base/sha256.h"

namespace trainyard {

/// The hash of so many bytes from the beginning.
struct HashedBytes {
  Sha256 hash;
  int64_t bytes = 0;
};

class FollowingDigest {
 public:
  using State = HashedBytes;
  /// Adds `count` bytes at `offset` to `hash`, or none of them and says why not.
  using HashPart = std::function<Status(Sha256& hash, int64_t offset, int64_t count)>;
  /// More than this must wait to be hashed for a thread to be worth starting.
  static constexpr int64_t kThreadBytes = int64_t{4} << 20;

  /// `threaded` false: all is done in finish().
  FollowingDigest(HashPart hash_part, bool threaded, State state = {})
      : hash_part_(std::move(hash_part)), threaded_(threaded), state_(std::move(state)) {}
  ~FollowingDigest() { stop(); }
  FollowingDigest(const FollowingDigest&) = delete;
  FollowingDigest& operator=(const FollowingDigest&) = delete;

  /// The first `bytes` can be read now.
  void follow_to(int64_t bytes);
  /// What has been hashed, which is less than can be read; the object is spent afterwards.
  State take_state() &&;
  /// The digest of the first `bytes`; the object is spent afterwards.
  Result<std::string> finish(int64_t bytes);

 private:
  void run() noexcept;
  void stop();

  const HashPart hash_part_;
  const bool threaded_;
  Mutex mu_;
  CondVar changed_;
  State state_;  // the hash is the thread's while there is one; the count is guarded by mu_
  int64_t ready_ TRAINYARD_GUARDED_BY(mu_) = 0;
  bool stopped_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace trainyard
