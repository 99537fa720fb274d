// kernels/cpu/flush_denormals.h: treats denormal numbers as 0 while a thread computes.
//
// Denormal numbers are those closer to 0 than the smallest normal number, which is 2^-126 for float
// and 2^-1022 for double. Intel's processors compute about a hundred times slower with them, and
// training produces many: once a model fits its data, gradients, optimizer moments and
// probabilities approach 0.
//
// A thread that flushes treats a denormal operand as a 0 of the same sign, and replaces a denormal
// result in the same way. Copying a number keeps its bits; so do minimum and maximum, which copy
// one of their operands.
//
// The processor keeps the setting per thread, and a new thread inherits it from the thread that
// starts it. The executor (src/runtime/executor.cc) enables flushing only around kernels, so
// conversions between numbers and text never flush.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace trainyard::kernels::cpu {

/// kFlushBits switches flushing on when it is set in the floating-point control register. The two
/// functions read and write that register of the calling thread.
#if defined(__x86_64__)
inline constexpr uint64_t kFlushBits = 0x8040;  // MXCSR: results (FTZ) and operands (DAZ)
inline uint64_t float_control() { return _mm_getcsr(); }
inline void set_float_control(uint64_t bits) { _mm_setcsr(static_cast<uint32_t>(bits)); }
#elif defined(__aarch64__)
inline constexpr uint64_t kFlushBits = uint64_t{1} << 24;  // FPCR.FZ: results and operands
inline uint64_t float_control() {
  uint64_t bits = 0;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
inline void set_float_control(uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#else
#error "how this processor flushes denormal numbers is not known here"
#endif

/// Returns kFlushBits if the calling thread flushes, and 0 if it does not. A process starts with 0.
inline uint64_t flush_mode() { return float_control() & kFlushBits; }
/// Sets the calling thread to `mode`, a result of flush_mode(). A worker of a thread pool passes
/// the mode of the thread whose work it does. Writing the register is slow, so an equal mode is
/// skipped.
inline void set_flush_mode(uint64_t mode) {
  const uint64_t control = float_control();
  if ((control & kFlushBits) != mode) set_float_control((control & ~kFlushBits) | mode);
}

/// Makes the calling thread flush during the object's lifetime; the destructor restores the
/// previous mode. The compiler does not know about modes and may move arithmetic across constructor
/// and destructor, so put arithmetic that must flush into a function that it cannot inline.
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
