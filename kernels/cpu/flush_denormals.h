// kernels/cpu/flush_denormals.h: denormal numbers count as 0 while a thread computes.
//
// A denormal float is below 2^-126 in size, a denormal double below 2^-1022. Intel's processors
// compute one about a hundred times slower than other numbers, and a model that has learned its
// data is full of them: its gradients, the moments of its optimizer and its probabilities vanish.
// So an operand that is denormal counts as 0 of its sign, and a result that would be denormal is 0
// of its sign. A number that is only copied keeps its bits, and a comparison that takes one of its
// operands copies it.
//
// The mode belongs to a thread, and a thread begins with that of the one that started it. It is set
// around arithmetic alone, where a program runs (src/runtime/executor.cc): text that is read as
// numbers, and numbers that are written as text, are never under it.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace trainyard::kernels::cpu {

/// The bits of a thread's floating-point control that flush.
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

/// Those bits of this thread: kFlushBits where it flushes, 0 as a program begins.
inline uint64_t flush_mode() { return float_control() & kFlushBits; }
/// A thread that computes for another takes over its mode. Costs little where it has it already.
inline void set_flush_mode(uint64_t mode) {
  const uint64_t control = float_control();
  if ((control & kFlushBits) != mode) set_float_control((control & ~kFlushBits) | mode);
}

/// This thread flushes as long as it lives; then it has the mode of before. The compiler knows of
/// no mode and may move arithmetic over its borders: what has to flush is a call between them.
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
