// src/runtime/device_peak.h: the peak rates of a device, and those that NVIDIA publishes for its
// GPUs, computed from what a driver reports about a GPU. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainyard {

/// The peak rates of a device, per second. 0: not known.
struct DevicePeak {
  double f32_flops = 0;   // a multiply-add counts as two
  double tf32_flops = 0;  // products of F32 numbers that are rounded to TF32; 0: computed in F32
  double half_flops = 0;  // products of 16-bit numbers with F32 sums
  double bytes = 0;       // bytes read from and written to its memory
  std::string source;     // origin of the numbers, such as "measured with 2 threads"
};

/// The properties that a driver reports of a GPU, or of an instance of one (MIG).
struct GpuFacts {
  std::string_view model;        // "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
  int major = 0, minor = 0;      // compute capability
  int multiprocessors = 0;       // of the instance
  double clock_hz = 0;           // the highest clock of the multiprocessors
  double memory_clock_hz = 0;    // two transfers per cycle
  double memory_width_bits = 0;  // of the whole GPU
};

/// Returns the dense rates, without sparsity, as NVIDIA's data sheets compute them: multiply-adds
/// per cycle of a multiprocessor by the number of multiprocessors and the clock. For an instance
/// the number of multiprocessors is its own, and the bandwidth is its share of the GPU's. Rates of
/// products are 0 for compute capabilities that are not known.
DevicePeak peak_of(const GpuFacts& gpu);

}  // namespace trainyard
