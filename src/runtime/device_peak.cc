#include "src/runtime/device_peak.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

namespace trainyard {
namespace {

/// Multiply-adds per cycle of a multiprocessor.
struct PerCycle {
  int major, minor;
  double f32;
  double half;  // of 16-bit numbers with F32 sums, on tensor cores
  // The same on GeForce cards, whose tensor cores add in F32 at half the rate.
  double half_of_geforce;
  bool has_tf32;  // tensor cores multiply half as many TF32 numbers as 16-bit numbers
  // The clock at which the data sheets state products, as a share of the highest clock: large
  // products reach the power limit before it.
  double product_clock_share;
};
// Sources: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions" (f32);
// NVIDIA's white papers on Turing (7.5), the A100 (8.0), GA102 (8.6), Ada (8.9), the H100 (9.0) and
// the RTX Blackwell architecture (12.0), and the data sheets of the HGX B200 and B300 (10.0, 10.3).
// 0.92: the H100 SXM has 989 TFLOP/s at 1.83 of 1.98 GHz, the H100 PCIe 756 at 1.62 of 1.755. 0.94:
// an HGX B200 has 18 PFLOP/s with 8 GPUs of 148 multiprocessors at up to 1.965 GHz.
constexpr PerCycle kPerCycle[] = {
    {7, 5, 64, 512, 256, false, 1},       {8, 0, 64, 1024, 1024, true, 1},
    {8, 6, 128, 512, 256, true, 1},       {8, 9, 128, 512, 256, true, 1},
    {9, 0, 128, 2048, 2048, true, 0.92},  {10, 0, 128, 4096, 4096, true, 0.94},
    {10, 3, 128, 4096, 4096, true, 0.94}, {12, 0, 128, 512, 256, true, 1},
};

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// The A10G is no GeForce card, but its data sheet has the halved rate, too (70 TFLOP/s).
bool has_halved_sums(std::string_view model) {
  return contains(model, "GeForce") || contains(model, "A10G");
}

/// The GeForce GTX 16 cards have the compute capability 7.5, but no tensor cores.
bool has_tensor_cores(std::string_view model) { return !contains(model, "GTX 16"); }

/// Returns the number that ends right before `end`; 0 if there is none.
int number_before(std::string_view text, size_t end) {
  size_t begin = end;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  int value = 0;
  std::from_chars(text.data() + begin, text.data() + end, value);
  return value;
}

/// Returns the instance's share of its GPU's memory bandwidth; 1 for a whole GPU. A profile such as
/// "3g.20gb" has the instance's slices of computation and its memory; the memory consists of
/// eighths of the GPU's. Source: NVIDIA's MIG user guide, the tables of supported profiles.
double bandwidth_share(std::string_view model) {
  const size_t mig = model.find(" MIG ");
  if (mig == model.npos) return 1;
  const std::string_view chip = model.substr(0, mig), profile = model.substr(mig);
  const size_t slices_end = profile.find("g."), memory_end = profile.find("gb");
  if (slices_end == profile.npos || memory_end == profile.npos) return 1;
  const int slices = number_before(profile, slices_end);
  const int gigabytes = number_before(profile, memory_end);
  const size_t whole_end = contains(chip, "GH200") ? chip.npos : chip.find("GB");
  const int whole = whole_end == chip.npos ? 0 : number_before(chip, whole_end);
  if (whole > 0) return std::clamp(std::round(8.0 * gigabytes / whole), 1.0, 8.0) / 8;
  // The driver's name of the GPU lacks its memory, as that of an H200, or has the CPU's. The A30
  // has four slices of computation, all others have seven.
  if (contains(chip, "A30")) return std::min(1.0, slices / 4.0);
  return slices >= 7 ? 1 : slices >= 3 ? 0.5 : slices / 8.0;
}

}  // namespace

DevicePeak peak_of(const GpuFacts& gpu) {
  DevicePeak peak;
  peak.source = "multiprocessors and clocks";
  peak.bytes = 2 * gpu.memory_clock_hz * gpu.memory_width_bits / 8 * bandwidth_share(gpu.model);
  const PerCycle* const of = std::ranges::find_if(
      kPerCycle, [&](const PerCycle& p) { return p.major == gpu.major && p.minor == gpu.minor; });
  if (of == std::end(kPerCycle)) return peak;
  const double cycles = gpu.multiprocessors * gpu.clock_hz;
  peak.f32_flops = 2 * of->f32 * cycles;
  if (!has_tensor_cores(gpu.model)) return peak;
  const double half = has_halved_sums(gpu.model) ? of->half_of_geforce : of->half;
  peak.half_flops = 2 * half * cycles * of->product_clock_share;
  if (of->has_tf32) peak.tf32_flops = peak.half_flops / 2;
  return peak;
}

}  // namespace trainyard
