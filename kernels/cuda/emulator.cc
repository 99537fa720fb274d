#include "kernels/cuda/emulator.h"

#include <array>
#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
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
// Every GPU gives a block 48 KiB of shared memory, static and dynamic together, and more if the
// kernel's limit is raised: the supported GPUs with the least memory, of compute capability 7.5, 64
// KiB, and those with the most 227 KiB. Source: CUDA C++ Programming Guide, technical
// specifications per compute capability.
constexpr int kSharedBytesMax = 48 << 10, kRaisedBytesMax = 227 << 10;

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "CUDA emulator: %s (block %u of %u, %u threads)\n", why.c_str(), blockIdx.x,
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

/// The shared memory of the running block: first what the launch asks for, then the static arrays
/// in the order in which the block's threads meet them. All of it is NaN until it is written, since
/// a GPU's shared memory keeps what any earlier block left there.
class SharedMemory {
 public:
  void begin(int dynamic_bytes, int limit) {
    used_ = static_cast<size_t>(dynamic_bytes);
    limit_ = static_cast<size_t>(limit);
    places_.clear();
    std::memset(dynamic(), 0xFF, used_);
  }
  /// No more aligned than TRAINYARD_DYNAMIC_SHARED promises.
  char* dynamic() { return memory_ + kDynamicAlignment; }
  void* place_of(const void* key, size_t bytes, size_t alignment) {
    for (const auto& [known, place] : places_) {
      if (known == key) return place;
    }
    const size_t at = (used_ + kDynamicAlignment + alignment - 1) / alignment * alignment;
    used_ = at + bytes - kDynamicAlignment;
    if (used_ > limit_) {
      stop("more shared memory than a block has: " + std::to_string(used_) + " bytes of " +
           std::to_string(limit_));
    }
    std::memset(memory_ + at, 0xFF, bytes);
    places_.emplace_back(key, memory_ + at);
    return memory_ + at;
  }

 private:
  static constexpr size_t kDynamicAlignment = 16;
  alignas(2 * kDynamicAlignment) char memory_[kRaisedBytesMax + kDynamicAlignment];
  std::vector<std::pair<const void*, void*>> places_;  // by key, in the order of use
  size_t used_ = 0, limit_ = 0;                        // bytes
};

Block block;
SharedMemory shared;
std::mutex running;  // protects the state of the running grid
std::atomic<int64_t> launches = 0;
std::mutex limits_mutex;                   // protects raised_limits
std::map<const void*, int> raised_limits;  // bytes of dynamic shared memory, by kernel
int raised_max = kRaisedBytesMax;          // of the emulated GPU; protected by limits_mutex

/// The bytes of dynamic shared memory that the kernel may have, and those of all shared memory.
std::pair<int, int> shared_limits(const void* kernel) {
  const std::scoped_lock lock(limits_mutex);
  const auto it = raised_limits.find(kernel);
  if (it == raised_limits.end()) return {kSharedBytesMax, kSharedBytesMax};
  return {it->second, raised_max};
}

void Block::enter() { block.loop(); }

}  // namespace

Submit submit = nullptr;

void launch(int64_t blocks, int threads, int shared_bytes, CUstream_st* stream, const void* kernel,
            std::function<void()> body) {
  if (threads < 1 || threads > 1024 || blocks < 1 || blocks > 0x7FFFFFFF)
    stop("a grid out of bounds");
  const auto [dynamic_max, shared_max] = shared_limits(kernel);
  if (shared_bytes < 0 || shared_bytes > dynamic_max) {
    stop("more dynamic shared memory than the kernel may have: " + std::to_string(shared_bytes) +
         " bytes of " + std::to_string(dynamic_max));
  }
  ++launches;
  auto work = [=, limit = shared_max, body = std::move(body)] {
    const std::scoped_lock lock(running);
    const cpu::FlushDenormals as_compiled_for_a_gpu;  // --ftz=true
    blockDim = {static_cast<unsigned>(threads), 1, 1};
    gridDim = {static_cast<unsigned>(blocks), 1, 1};
    for (int64_t b = 0; b < blocks; ++b) {
      blockIdx = {static_cast<unsigned>(b), 0, 0};
      shared.begin(shared_bytes, limit);
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
bool raise_shared_limit(const void* kernel, int bytes) {
  const std::scoped_lock lock(limits_mutex);
  if (bytes < 0 || bytes > raised_max) return false;
  raised_limits[kernel] = bytes;
  return true;
}
void set_raised_max(int bytes) {
  const std::scoped_lock lock(limits_mutex);
  raised_max = std::min(bytes, kRaisedBytesMax);
}
void* dynamic_shared() { return shared.dynamic(); }
void* static_shared(const void* key, size_t bytes, size_t alignment) {
  return shared.place_of(key, bytes, alignment);
}
void wait_for_block() { block.wait(State::kAtBlock); }
void exchange(void* value, int size, int mask) { block.exchange(value, size, mask); }
void gather(const void* value, int size, void* all) { block.gather(value, size, all); }

/// The data that GCC passes for an access to a misaligned address: the place in the source, the
/// type, and the alignment that it needs.
struct MisalignedAccess {
  const char* file;
  uint32_t line, column;
  const void* type;
  uint8_t log_alignment, kind;
};

}  // namespace emulator
}  // namespace trainyard::kernels::cuda

/// Called by kernels' code, which is compiled with -fsanitize=alignment, instead of the function in
/// the sanitizer's own library: a GPU stops at such an access too (error 716, misaligned address).
extern "C" [[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(
    const trainyard::kernels::cuda::emulator::MisalignedAccess* access, uintptr_t address);
extern "C" [[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(
    const trainyard::kernels::cuda::emulator::MisalignedAccess* access, uintptr_t address) {
  const uintptr_t alignment = uintptr_t{1} << access->log_alignment;
  trainyard::kernels::cuda::emulator::stop(
      std::string(access->file) + ":" + std::to_string(access->line) +
      ": a misaligned address, which is " + std::to_string(address % alignment) +
      " bytes past a multiple of " + std::to_string(alignment));
}
