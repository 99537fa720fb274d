// kernels/cpu/flush_denormals.h: denormal numbers count as 0 while a thread computes.
//
// A float is denormal below 2^-126 in size, a double below 2^-1022. Intel's processors compute with
// denormal numbers about a hundred times slower than with others, and a model that has learned its
// data is full of them: its gradients, the moments of its optimizer and its probabilities vanish.
// In this mode, a denormal operand counts as 0 of its sign, and a result that would be denormal
// becomes 0 of its sign. A number that is only copied keeps its bits; a minimum or maximum copies
// one of its operands.
//
// Each thread has a mode of its own and inherits that of the thread that started it. Only
// arithmetic runs in this mode, because it is set where a program runs (src/runtime/executor.cc):
// numbers are converted from and to text outside of it.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace trainyard::kernels::cpu {

/// The bits of a thread's floating-point control register that switch flushing on.
#if defined(__x86_64__)
inline constexpr uint64_t kFlushBits = 0x8040;  // MXCSR: results (FTZ) and operands (DAZ)
inline uint64_t float_control() { return _mm_getcsr(); }
inline void set_float_control(uint64_t bits) { _mm_setcsr(static_cast<uint32_t>(bits)); }
#elif defined(__aarch64__)
inline constexpr uint64_t kFlushBits = uint64_t{1} << 24;  // FPCR.FZ: both
inline uint64_t float_control() {
  uint64_t bits = 0;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
inline void set_float_control(uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#else
#error "how this processor flushes denormal numbers is not known here"
#endif

/// The mode of this thread: kFlushBits if it flushes, and 0 in a new process.
inline uint64_t flush_mode() { return float_control() & kFlushBits; }
/// Sets the mode of this thread, which costs little if it has that mode already. A thread that
/// computes for another one takes over its mode.
inline void set_flush_mode(uint64_t mode) {
  const uint64_t control = float_control();
  if ((control & kFlushBits) != mode) set_float_control((control & ~kFlushBits) | mode);
}

/// The thread flushes for as long as an object lives, and then has its former mode again. The
/// compiler does not know about the mode and may move arithmetic into or out of the scope, so the
/// arithmetic that has to flush belongs into a function that is called within it.
class FlushDenormals {
 public:
  FlushDenormals() : before_(flush_mode()) { set_flush_mode(kFlushBits); }
  ~FlushDenormals() { set_flush_mode(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  const uint64_t before_;
};

}  // namespace trainyard::kernels::cpu
