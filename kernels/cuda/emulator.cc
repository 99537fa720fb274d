#include "kernels/cuda/emulator.h"

#include <array>
#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ucontext.h>

#include "kernels/cpu/flush_denormals.h"
#include "kernels/math/philox.h"

namespace trainyard::kernels::cuda {

Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 64 << 10;
constexpr int kSharedBytesMax = 48 << 10;  // what a GPU provides without an opt-in

[[noreturn]] void stop(const char* why) {
  std::fprintf(stderr, "CUDA emulator: %s (block %u of %u, %u threads)\n", why, blockIdx.x,
               gridDim.x, blockDim.x);
  std::abort();
}

/// A stack on which threads of a block run. It runs one thread to its end and then the next thread
/// that has not begun; a thread that waits occupies its stack.
struct Fiber {
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  ucontext_t start;
  std::jmp_buf at;
  bool begun = false;
  int thread = -1;  // the thread that waits on this stack
};

/// The value that a thread passes to its warp.
using Slot = std::array<std::byte, 32>;

enum class State : uint8_t { kNew, kReady, kAtBlock, kAtWarp, kDone };

class Block {
 public:
  void run(int threads, const std::function<void()>& body) {
    body_ = &body;
    draw_order(threads);
    state_.assign(static_cast<size_t>(threads), State::kNew);
    fiber_of_.assign(static_cast<size_t>(threads), nullptr);
    parity_.assign(static_cast<size_t>(threads), 0);
    slots_.resize(2 * static_cast<size_t>(threads));
    next_ = 0;
    int done_before = -1;
    while (true) {
      run_ready();
      const int done = count(State::kDone);
      if (done == threads) return;
      if (!release() && done == done_before)
        stop("some threads of the block never reached a barrier");
      done_before = done;
    }
  }

  void wait(State where) {
    const int me = current_;
    state_[static_cast<size_t>(me)] = where;
    fiber_->thread = me;
    fiber_of_[static_cast<size_t>(me)] = fiber_;
    if (_setjmp(fiber_->at) == 0) _longjmp(scheduler_, 1);
    // Resumed: the scheduler has set fiber_ and current_.
  }

  void exchange(void* value, int size, int mask) {
    const auto me = static_cast<size_t>(current_), parity = size_t{parity_[me]};
    const size_t other = me ^ static_cast<size_t>(mask);
    if (other >= state_.size()) stop("a shuffle with a lane that the block does not have");
    give(value, size);
    std::memcpy(value, &slots_[2 * other + parity], static_cast<size_t>(size));
  }

  void gather(const void* value, int size, void* all) {
    const auto me = static_cast<size_t>(current_), parity = size_t{parity_[me]};
    const size_t first = me / kWarp * kWarp;
    if (first + kWarp > state_.size()) stop("an incomplete warp");
    give(value, size);
    for (size_t lane = 0; lane < kWarp; ++lane) {
      std::memcpy(static_cast<char*>(all) + lane * static_cast<size_t>(size),
                  &slots_[2 * (first + lane) + parity], static_cast<size_t>(size));
    }
  }

 private:
  /// Stores a value where the warp's other threads can read it, and waits until all of them have
  /// done so.
  void give(const void* value, int size) {
    const auto me = static_cast<size_t>(current_);
    Slot& slot = slots_[2 * me + parity_[me]];
    if (static_cast<size_t>(size) > slot.size()) stop("a shuffled value is too large");
    parity_[me] ^= 1;
    std::memcpy(slot.data(), value, static_cast<size_t>(size));
    wait(State::kAtWarp);
  }

  void draw_order(int threads) {
    ++runs_;
    order_.resize(static_cast<size_t>(threads));
    for (int i = 0; i < threads; ++i) {
      const auto j = static_cast<size_t>(math::philox_u32(1, 0, runs_, static_cast<uint64_t>(i)) %
                                         static_cast<unsigned>(i + 1));
      order_[static_cast<size_t>(i)] = order_[j];
      order_[j] = i;
    }
  }

  int count(State s) const {
    int n = 0;
    for (const State of : state_) n += of == s ? 1 : 0;
    return n;
  }

  void run_ready() {
    for (const int t : order_) {
      State& s = state_[static_cast<size_t>(t)];
      if (s != State::kReady) continue;
      s = State::kNew;  // it runs now; wait() or its end sets the next state
      resume(*fiber_of_[static_cast<size_t>(t)], t);
    }
    while (next_ < order_.size()) resume(idle_fiber(), -1);
  }

  Fiber& idle_fiber() {
    for (const auto& f : fibers_) {
      if (f->thread < 0) return *f;
    }
    fibers_.push_back(std::make_unique<Fiber>());
    return *fibers_.back();
  }

  void resume(Fiber& fiber, int thread) {
    fiber_ = &fiber;
    if (thread >= 0) set_current(thread);
    fiber.thread = -1;
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.begun) _longjmp(fiber.at, 1);
    fiber.begun = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = kStackBytes;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, &Block::enter, 0);
    setcontext(&fiber.start);
  }

  static void enter();
  [[noreturn]] void loop() {
    while (true) {
      while (next_ < order_.size()) {
        set_current(order_[next_++]);
        (*body_)();
        state_[static_cast<size_t>(current_)] = State::kDone;
      }
      // A thread that had waited has ended on this stack, and no thread is left to begin.
      if (_setjmp(fiber_->at) == 0) _longjmp(scheduler_, 1);
    }
  }

  void set_current(int t) {
    current_ = t;
    threadIdx.x = static_cast<unsigned>(t);
  }

  /// Makes threads ready whose barrier has been reached by all its threads. Returns true if there
  /// were any.
  bool release() {
    const int waiting = count(State::kAtBlock);
    if (waiting > 0 && waiting + count(State::kDone) == static_cast<int>(state_.size())) {
      for (State& s : state_) {
        if (s == State::kAtBlock) s = State::kReady;
      }
      return true;
    }
    bool any = false;
    for (size_t first = 0; first < state_.size(); first += kWarp) {
      const size_t end = std::min(first + kWarp, state_.size());
      bool all = true;
      for (size_t t = first; t < end; ++t) all &= state_[t] == State::kAtWarp;
      for (size_t t = first; all && t < end; ++t) state_[t] = State::kReady;
      any |= all;
    }
    return any;
  }

  const std::function<void()>* body_ = nullptr;
  std::vector<int> order_;
  std::vector<State> state_;
  std::vector<Fiber*> fiber_of_;
  std::vector<uint8_t> parity_;
  std::vector<Slot> slots_;  // two per thread, used alternately
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::jmp_buf scheduler_;
  Fiber* fiber_ = nullptr;
  int current_ = -1;
  size_t next_ = 0;  // index in order_ of the first thread that has not begun
  uint64_t runs_ = 0;
};

Block block;
std::mutex running;  // protects the state of the running grid
std::atomic<int64_t> launches = 0;
alignas(16) char shared[kSharedBytesMax];

void Block::enter() { block.loop(); }

}  // namespace

Submit submit = nullptr;

void launch(int64_t blocks, int threads, int shared_bytes, CUstream_st* stream,
            std::function<void()> body) {
  if (threads < 1 || threads > 1024 || blocks < 1 || blocks > 0x7FFFFFFF)
    stop("a grid out of bounds");
  if (shared_bytes < 0 || shared_bytes > kSharedBytesMax) stop("more than 48 KiB of shared memory");
  ++launches;
  auto work = [=, body = std::move(body)] {
    const std::scoped_lock lock(running);
    const cpu::FlushDenormals as_compiled_for_a_gpu;  // --ftz=true
    blockDim = {static_cast<unsigned>(threads), 1, 1};
    gridDim = {static_cast<unsigned>(blocks), 1, 1};
    for (int64_t b = 0; b < blocks; ++b) {
      blockIdx = {static_cast<unsigned>(b), 0, 0};
      std::memset(shared, 0xFF, static_cast<size_t>(shared_bytes));  // NaN: uninitialized
      block.run(threads, body);
    }
  };
  if (submit != nullptr) {
    submit(stream, std::move(work));
  } else {
    work();
  }
}

int64_t launch_count() { return launches; }
void* dynamic_shared() { return shared; }
void wait_for_block() { block.wait(State::kAtBlock); }
void exchange(void* value, int size, int mask) { block.exchange(value, size, mask); }
void gather(const void* value, int size, void* all) { block.gather(value, size, all); }

}  // namespace emulator
}  // namespace trainyard::kernels::cuda
