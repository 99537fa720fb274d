// kernels/cpu/peak_flops.h: measures the machine's peak fp32 rate, so that rates can be printed as
// a share of it.
#pragma once

namespace trainyard::kernels::cpu {

/// Returns the best of several short runs of independent fused multiply-adds on `threads` threads,
/// in GFLOP/s. Uses 512-bit vectors if the CPU has them and `vector_bits` permits, else 256-bit
/// ones. With turbo clocks a short kernel may exceed this rate.
double measure_peak_gflops(int threads, int vector_bits = 512);

}  // namespace trainyard::kernels::cpu
