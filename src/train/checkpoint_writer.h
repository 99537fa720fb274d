// src/train/checkpoint_writer.h: writes a checkpoint on a thread of its own while steps go on. One
// at a time and without a queue, so that the memory of one snapshot is all it takes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>

#include "src/base/result.h"

namespace trainyard {

/// Used by one thread. The destructor waits for the write under way.
class CheckpointWriter {
 public:
  struct Written {
    int64_t step;
    Result<std::filesystem::path> saved;
    int64_t cpu_us;  // that the thread computed
  };

  /// Calls `write`, which owns what it writes, on the thread. Nothing else may be under way.
  void begin(int64_t step, std::function<Result<std::filesystem::path>()> write);
  /// A write was begun and not taken.
  bool under_way() const { return written_.valid(); }
  /// take() will not wait.
  bool done() const;
  /// Waits for the write under way and frees what it wrote. Throws what it threw.
  Written take();

 private:
  int64_t step_ = 0;
  int64_t cpu_us_ = 0;  // the thread's, until it has written
  std::future<Result<std::filesystem::path>> written_;
};

}  // namespace trainyard
