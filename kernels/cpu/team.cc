#include "kernels/cpu/team.h"

#include <omp.h>
#include <sched.h>

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/flush_denormals.h"

namespace trainyard::kernels::cpu {
namespace {

constexpr int kPauses = 64;  // spin iterations, about 3 us: the usual time between two steps
constexpr auto kYield = std::chrono::microseconds(60);  // yield the core for this time, then sleep

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Returns once `value` differs from `old`: spins, then yields, then sleeps.
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kPauses; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  const auto deadline = std::chrono::steady_clock::now() + kYield;
  do {
    for (int i = 0; i < 8; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
    sched_yield();  // the awaited thread may be waiting for this core
  } while (std::chrono::steady_clock::now() < deadline);
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

Team::Team(int threads) {
  for (int i = 1; i < threads; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    Slot& slot = *slots_.back();
    slot.thread = std::jthread([&slot, i] { serve(slot, i); });
  }
}

Team::~Team() {
  for (const auto& slot : slots_) {  // a slot without a function ends its thread
    slot->function = nullptr;
    slot->posted.fetch_add(1, std::memory_order_seq_cst);
    slot->posted.notify_one();
  }
}

void Team::serve(Slot& slot, int index) {
  omp_set_num_threads(1);  // for oneDNN on this thread
  for (uint32_t task = 0;;) {
    wait_for_change(slot.posted, task);
    task = slot.posted.load(std::memory_order_acquire);
    if (!slot.take(task)) continue;  // the caller has computed it
    if (slot.function == nullptr) return;
    set_flush_mode(slot.flush_mode);
    try {
      slot.function(slot.context, index);
    } catch (...) {
      slot.error = std::current_exception();
    }
    // Sequentially consistent: notify_one() skips the wake-up if it sees no waiter. With a weaker
    // order it could check before this store is visible to a thread that is about to sleep.
    slot.done.store(task, std::memory_order_seq_cst);
    slot.done.notify_one();
  }
}

void Team::dispatch(int parts, Function function, const void* context) {
  const uint64_t mode = flush_mode();
  for (int i = 1; i < parts; ++i) {
    Slot& slot = *slots_[static_cast<size_t>(i - 1)];
    slot.function = function;
    slot.context = context;
    slot.flush_mode = mode;
    slot.posted.fetch_add(1, std::memory_order_seq_cst);  // same order as for `done` in serve()
    slot.posted.notify_one();
  }
  std::exception_ptr error;
  const auto compute = [&](int index) {
    try {
      function(context, index);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  compute(0);
  for (int i = 1; i < parts; ++i) {  // wait for all, even after an error: they use `context`
    Slot& slot = *slots_[static_cast<size_t>(i - 1)];
    const uint32_t posted = slot.posted.load(std::memory_order_relaxed);
    if (slot.take(posted)) {
      compute(i);
      continue;
    }
    for (uint32_t done; (done = slot.done.load(std::memory_order_acquire)) != posted;) {
      wait_for_change(slot.done, done);
    }
    if (slot.error && !error) error = slot.error;
    slot.error = nullptr;
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace trainyard::kernels::cpu
