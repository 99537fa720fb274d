// kernels/cpu/peak_flops.h: the machine's fp32 peak, measured, so that every rate can be printed as
// a share of it.
#pragma once

namespace trainyard::kernels::cpu {

/// Best of several short runs of independent fused multiply-adds on `threads` threads, in GFLOP/s.
/// A yardstick rather than a ceiling: turbo can lift a short kernel above it. In vectors of 512
/// bits where the CPU has them and `vector_bits` allows it, else of 256.
double measure_peak_gflops(int threads, int vector_bits = 512);

}  // namespace trainyard::kernels::cpu
