// kernels/cpu/team.h: the threads that the cpu kernels of one job share.
//
// OpenMP's team is not used because it either spins or sleeps. When it spins while another process
// needs the cores, a barrier takes a scheduler slice: 8 ms instead of 1 us, measured on two busy
// cores. When it sleeps, every parallel region takes 23 us on an idle machine. This team spins for
// a few microseconds, then polls while yielding its core to others, then sleeps. oneDNN runs inside
// it, with one single-threaded primitive per thread and slice (onednn.h).
//
// Work is split only by index, so results depend on the thread count but not on timing. Which
// thread computes a part does depend on timing: a thread that has not begun its part when the
// caller has finished its own, since other processes have the cores, leaves it to the caller. All
// threads compute in the caller's mode of flushing denormals (flush_denormals.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace trainyard::kernels::cpu {

/// A half-open range of items.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// Returns part `index` of [0, n) when it is divided into `parts` nearly equal ranges that start at
/// multiples of `step`.
inline Range part_of(int64_t n, int64_t index, int64_t parts, int64_t step = 1) {
  const int64_t blocks = (n + step - 1) / step;
  return {std::min(n, blocks * index / parts * step),
          std::min(n, blocks * (index + 1) / parts * step)};
}

class Team {
 public:
  explicit Team(int threads);  // counts the thread that calls run()
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(slots_.size()) + 1; }

  /// Calls f(index) for index 0..parts-1, index 0 and those that no other thread has begun on the
  /// caller's thread, and returns when all calls have returned. parts <= size(). Rethrows an
  /// exception that f throws. Only one thread may call it at a time.
  template <typename F>
  void run(int parts, const F& f) {
    if (parts <= 1) {
      f(0);
      return;
    }
    dispatch(
        parts, [](const void* context, int index) { (*static_cast<const F*>(context))(index); },
        &f);
  }

  /// Calls f(begin, end) on disjoint ranges that cover [0, n), with at least `grain` items per
  /// thread. The ranges depend on the team's size, so f must compute each item independently of its
  /// range.
  template <typename F>
  void parallel_for(int64_t n, int64_t grain, const F& f) {
    if (n <= 0) return;
    const int64_t parts =
        std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, static_cast<int64_t>(size()));
    run(static_cast<int>(parts), [&](int index) {
      const Range range = part_of(n, index, parts);
      f(range.begin, range.end);
    });
  }

  /// Calls f(chunk) for chunk 0..chunks-1. A thread that has finished a chunk takes the next one,
  /// so that a thread that other processes slow down delays the others by one chunk at most.
  template <typename F>
  void run_chunks(int64_t chunks, const F& f) {
    const int64_t parts = std::min(chunks, static_cast<int64_t>(size()));
    std::atomic<int64_t> next{0};
    run(static_cast<int>(parts), [&](int) {
      for (int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < chunks;)
        f(chunk);
    });
  }

 private:
  using Function = void (*)(const void* context, int index);

  // The mailbox of one thread. `posted` counts its tasks and `taken` those that the thread or the
  // caller has begun; whoever increments `taken` computes the task. `done` is the newest task that
  // the thread has finished. The caller writes the other fields before it increments `posted`, and
  // leaves them unchanged until the task has been computed.
  struct alignas(64) Slot {
    std::atomic<uint32_t> posted{0};
    Function function = nullptr;
    const void* context = nullptr;
    uint64_t flush_mode = 0;  // flush mode of the caller
    std::exception_ptr error;
    std::atomic<uint32_t> taken{0};
    alignas(64) std::atomic<uint32_t> done{0};

    /// Returns whether the task is the calling thread's now.
    bool take(uint32_t task) {
      uint32_t before = task - 1;
      return taken.compare_exchange_strong(before, task, std::memory_order_acq_rel);
    }
    std::jthread thread;
  };

  void dispatch(int parts, Function function, const void* context);
  static void serve(Slot& slot, int index);

  std::vector<std::unique_ptr<Slot>> slots_;  // for threads 1 to size() - 1
};

/// The minimum number of elements per thread: waking a spinning thread takes about 1 us, an element
/// of a memory-bound loop about 0.1 ns.
constexpr int64_t kElementsPerThread = 16384;

/// Returns the grain, in items, for parallel_for over items of `elements` elements each.
inline int64_t grain_of(int64_t elements) {
  return std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(elements, 1));
}

}  // namespace trainyard::kernels::cpu
