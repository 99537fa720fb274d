// src/train/checkpoint_writer.h: writes a checkpoint on a separate thread while training continues.
// It writes one checkpoint at a time and has no queue, so that it needs the memory of only one
// snapshot.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>

#include "src/base/result.h"

namespace trainyard {

/// Not thread-safe. The destructor waits for the write under way.
class CheckpointWriter {
 public:
  struct Written {
    int64_t step;
    Result<std::filesystem::path> saved;
    int64_t cpu_us;  // CPU time of the writing thread
  };

  /// Calls `write` on a new thread. `write` must own its data. No other write may be under way.
  void begin(int64_t step, std::function<Result<std::filesystem::path>()> write);
  /// Returns whether a write has begun whose result has not been taken.
  bool under_way() const { return written_.valid(); }
  /// Returns whether take() would return without waiting.
  bool done() const;
  /// Waits for the write under way and releases its data. Rethrows an exception of `write`.
  Written take();

 private:
  int64_t step_ = 0;
  int64_t cpu_us_ = 0;  // set by the writing thread when it has written
  std::future<Result<std::filesystem::path>> written_;
};

}  // namespace trainyard
