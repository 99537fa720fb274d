// src/base/following_digest.h: the SHA-256 of content that arrives from its beginning to its end.
// A thread of its own hashes the bytes as they arrive, so that little is left to hash at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "src/base/mutex.h"
#include "src/base/result.h"
#include "src/base/sha256.h"

namespace trainyard {

/// The hash of the first `bytes` bytes of the content.
struct HashedBytes {
  Sha256 hash;
  int64_t bytes = 0;
};

class FollowingDigest {
 public:
  using State = HashedBytes;
  /// Adds `count` bytes of the content from `offset` on to `hash`. On an error it adds none.
  using HashPart = std::function<Status(Sha256& hash, int64_t offset, int64_t count)>;
  /// The thread is started when so many bytes wait to be hashed.
  static constexpr int64_t kThreadBytes = int64_t{4} << 20;

  /// If `threaded` is false, finish() does all the work. `state`: bytes that are hashed already.
  FollowingDigest(HashPart hash_part, bool threaded, State state = {})
      : hash_part_(std::move(hash_part)), threaded_(threaded), state_(std::move(state)) {}
  ~FollowingDigest() { stop(); }
  FollowingDigest(const FollowingDigest&) = delete;
  FollowingDigest& operator=(const FollowingDigest&) = delete;

  /// Reports that the first `bytes` bytes of the content can be read.
  void follow_to(int64_t bytes);
  /// Returns the hash so far, which may cover fewer bytes than can be read. The object cannot be
  /// used afterwards.
  State take_state() &&;
  /// Returns the digest of the first `bytes` bytes. The object cannot be used afterwards.
  Result<std::string> finish(int64_t bytes);

 private:
  void run() noexcept;
  void stop();

  const HashPart hash_part_;
  const bool threaded_;
  Mutex mu_;
  CondVar changed_;
  State state_;  // `hash` belongs to the thread while it runs; `bytes` is guarded by mu_
  int64_t ready_ TRAINYARD_GUARDED_BY(mu_) = 0;
  bool stopped_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace trainyard
