// Catches: a share of the peak, or advice about a GPU, that is off because the peak belongs to
// another model, to the whole GPU instead of its instance, or to a rate that the card does not
// have.
#include "src/runtime/device_peak.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trainyard {
namespace {

constexpr double kMega = 1e6, kGiga = 1e9, kTera = 1e12;

/// Pairs the properties that CUDA reports of a GPU with the rates that NVIDIA publishes for
/// products without sparsity, in TFLOP/s and GB/s.
struct PublishedPeak {
  GpuFacts gpu;
  double f32, tf32, half, gigabytes;
};
// Sources of the figures: NVIDIA's data sheets of the T4, A10, L4, A100, H100, H200, GH200 and
// HGX B200; for GeForce cards the appendices of the white papers on Turing, GA102, Ada and RTX
// Blackwell, with F32 sums.
const PublishedPeak kPublished[] = {
    {{"Tesla T4", 7, 5, 40, 1590 * kMega, 5001 * kMega, 256}, 8.1, 0, 65, 320},
    {{"NVIDIA GeForce RTX 2080 Ti", 7, 5, 68, 1545 * kMega, 7000 * kMega, 352}, 13.4, 0, 53.8, 616},
    {{"NVIDIA GeForce RTX 3060", 8, 6, 28, 1777 * kMega, 7501 * kMega, 192}, 12.7, 12.7, 25.5, 360},
    {{"NVIDIA A100-SXM4-40GB", 8, 0, 108, 1410 * kMega, 1215 * kMega, 5120}, 19.5, 156, 312, 1555},
    {{"NVIDIA A100-SXM4-80GB", 8, 0, 108, 1410 * kMega, 1593 * kMega, 5120}, 19.5, 156, 312, 2039},
    {{"NVIDIA A10", 8, 6, 72, 1695 * kMega, 6251 * kMega, 384}, 31.2, 62.5, 125, 600},
    {{"NVIDIA A10G", 8, 6, 80, 1710 * kMega, 6251 * kMega, 384}, 35, 35, 70, 600},
    {{"NVIDIA L4", 8, 9, 58, 2040 * kMega, 6251 * kMega, 192}, 30.3, 60, 121, 300},
    {{"NVIDIA L40S", 8, 9, 142, 2520 * kMega, 9001 * kMega, 384}, 91.6, 183, 362, 864},
    {{"NVIDIA GeForce RTX 4090", 8, 9, 128, 2520 * kMega, 10501 * kMega, 384},
     82.6,
     82.6,
     165.2,
     1008},
    {{"NVIDIA H100 80GB HBM3", 9, 0, 132, 1980 * kMega, 2619 * kMega, 5120}, 67, 494, 989, 3350},
    {{"NVIDIA H100 PCIe", 9, 0, 114, 1755 * kMega, 1593 * kMega, 5120}, 51, 378, 756, 2000},
    {{"NVIDIA H200", 9, 0, 132, 1980 * kMega, 3201 * kMega, 6144}, 67, 494, 989, 4800},
    {{"NVIDIA GH200 480GB", 9, 0, 132, 1980 * kMega, 2619 * kMega, 6144}, 67, 494, 990, 4000},
    {{"NVIDIA B200", 10, 0, 148, 1965 * kMega, 3996 * kMega, 8192}, 75, 1125, 2250, 8000},
    {{"NVIDIA GeForce RTX 5090", 12, 0, 170, 2407 * kMega, 14001 * kMega, 512},
     104.8,
     104.8,
     209.5,
     1792},
};

TEST(DevicePeak, IsWhatNvidiaPublishes) {
  for (const PublishedPeak& p : kPublished) {
    const DevicePeak peak = peak_of(p.gpu);
    EXPECT_NEAR(peak.f32_flops / (p.f32 * kTera), 1, 0.03) << p.gpu.model;
    EXPECT_NEAR(peak.half_flops / (p.half * kTera), 1, 0.03) << p.gpu.model;
    EXPECT_NEAR(peak.bytes / (p.gigabytes * kGiga), 1, 0.03) << p.gpu.model;
    if (p.tf32 == 0) {
      EXPECT_EQ(peak.tf32_flops, 0) << p.gpu.model << " has no TF32";
    } else {
      EXPECT_NEAR(peak.tf32_flops / (p.tf32 * kTera), 1, 0.03) << p.gpu.model;
    }
  }
}

// CUDA reports an instance's own multiprocessors, but the clocks and the width of the whole memory.
TEST(DevicePeak, OfAnInstanceIsItsShare) {
  struct Case {
    const char* model;
    int multiprocessors;
    double gigabytes_share;
  };
  for (const Case c : {Case{"NVIDIA A100-SXM4-40GB MIG 3g.20gb", 42, 0.5},
                       Case{"NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 0.125},
                       Case{"NVIDIA A100-SXM4-40GB MIG 1g.10gb", 14, 0.25},
                       Case{"NVIDIA A100-SXM4-40GB MIG 7g.40gb", 98, 1}}) {
    const DevicePeak peak =
        peak_of({c.model, 8, 0, c.multiprocessors, 1410 * kMega, 1215 * kMega, 5120});
    EXPECT_NEAR(peak.half_flops, 312 * kTera * c.multiprocessors / 108, 3 * kTera) << c.model;
    EXPECT_NEAR(peak.bytes, 1555 * kGiga * c.gigabytes_share, 5 * kGiga) << c.model;
  }
  // The driver's name of the whole GPU lacks its memory.
  const double hopper =
      peak_of({"NVIDIA H200 MIG 3g.71gb", 9, 0, 60, 1980 * kMega, 3201 * kMega, 6144}).bytes;
  EXPECT_NEAR(hopper, 2400 * kGiga, 100 * kGiga);
  const double quarter =
      peak_of({"NVIDIA A30 MIG 1g.6gb", 8, 0, 14, 1440 * kMega, 1215 * kMega, 3072}).bytes;
  EXPECT_NEAR(quarter, 933 * kGiga / 4, 5 * kGiga);
}

TEST(DevicePeak, OfAGpuWithoutTensorCoresHasNoRateOfProducts) {
  const DevicePeak peak =
      peak_of({"NVIDIA GeForce GTX 1660", 7, 5, 22, 1785 * kMega, 4001 * kMega, 192});
  EXPECT_NEAR(peak.f32_flops / (5.0 * kTera), 1, 0.03);
  EXPECT_EQ(peak.half_flops, 0);
}

TEST(DevicePeak, OfAnUnknownArchitectureIsItsMemorysAlone) {
  const DevicePeak peak = peak_of({"NVIDIA X", 99, 0, 100, 2e9, 1e9, 512});
  EXPECT_EQ(peak.f32_flops, 0);
  EXPECT_EQ(peak.half_flops, 0);
  EXPECT_EQ(peak.bytes, 128 * kGiga);
}

}  // namespace
}  // namespace trainyard
