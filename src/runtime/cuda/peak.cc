#include "src/runtime/cuda/peak.h"

#include <string_view>

namespace trainyard::cuda {
namespace {

/// Published dense rates, without sparsity, in TFLOP/s and GB/s. Source: NVIDIA's data sheets. The
/// first entry whose words are all contained in the model's name applies.
struct Published {
  std::string_view words[2];
  double f32_teraflops, half_teraflops, gigabytes;
};
constexpr Published kPublished[] = {
    {{"H200", "NVL"}, 60, 835, 4800},    {{"H200", ""}, 67, 989, 4800},
    {{"H100", "PCIe"}, 51, 756, 2000},   {{"H100", "NVL"}, 60, 835, 3900},
    {{"H100", ""}, 67, 989, 3350},       {{"A100", "40GB"}, 19.5, 312, 1555},
    {{"A100", "PCIE"}, 19.5, 312, 1935}, {{"A100", ""}, 19.5, 312, 2039},
    {{"L40S", ""}, 91.6, 362, 864},
};

/// Multiply-adds per cycle of a multiprocessor: in F32, and of 16-bit numbers with F32 sums on its
/// tensor cores. Source: CUDA C++ Programming Guide, throughput of arithmetic instructions;
/// NVIDIA's architecture white papers.
struct PerCycle {
  int major, minor;
  double f32, half;
};
constexpr PerCycle kPerCycle[] = {
    {7, 5, 64, 512}, {8, 0, 64, 1024}, {8, 6, 128, 512}, {8, 9, 128, 512}, {9, 0, 128, 2048}};

int attribute(const Device& device, cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device.ordinal()), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

DevicePeak peak_of(const Device& device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device.ordinal()), "cudaGetDeviceProperties");
  const std::string_view model = properties.name;
  for (const Published& p : kPublished) {
    if (model.find(p.words[0]) == model.npos || model.find(p.words[1]) == model.npos) continue;
    return {p.f32_teraflops * 1e12, p.half_teraflops * 1e12, p.gigabytes * 1e9, "data sheet"};
  }
  DevicePeak peak;
  // Two transfers per cycle; the bus width is in bits.
  peak.bytes = 2e3 * attribute(device, cudaDevAttrMemoryClockRate) *
               attribute(device, cudaDevAttrGlobalMemoryBusWidth) / 8;
  peak.source = "multiprocessors and clocks";
  for (const PerCycle& p : kPerCycle) {
    if (p.major != properties.major || p.minor != properties.minor) continue;
    const double cycles = 1e3 * attribute(device, cudaDevAttrClockRate) *  // in kHz
                          properties.multiProcessorCount;
    peak.f32_flops = 2 * p.f32 * cycles;
    peak.half_flops = 2 * p.half * cycles;
  }
  return peak;
}

}  // namespace trainyard::cuda
