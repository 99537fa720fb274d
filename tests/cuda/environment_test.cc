// Catches: an unsuitable driver, GPU or compute mode for which the user sees a CUDA error number
// instead of what to do; and a small GPU whose memory is filled by staging buffers or workspaces.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "src/runtime/cuda/backend.h"
#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/staging.h"
#include "tests/cuda/fake_cuda.h"

namespace trainyard::cuda {
namespace {

/// The exception thrown when the GPU is opened.
CudaError refusal() {
  try {
    const CudaBackend cuda(0);
  } catch (const CudaError& e) {
    return e;
  }
  return {"none", 0};
}

TEST(CudaEnvironment, AGpuThatTheBuildHasNoCodeForIsNamed) {
  testing::set_has_code(false);
  const std::string text = refusal().what();
  testing::set_has_code(true);
  EXPECT_NE(text.find("no code for this GPU: it is built for compute capability 0.0, and "
                      "Emulated GPU has 9.0"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("-DTRAINYARD_CUDA_ARCHITECTURES=90"), std::string::npos) << text;
}

// A build for such a GPU would fail: the toolkit has no code for it.
TEST(CudaEnvironment, AGpuThatIsTooOldForEveryBuildIsRefusedWithoutAdviceToBuild) {
  testing::set_has_code(false);
  testing::set_device_capability(7, 0);
  const std::string text = refusal().what();
  testing::set_device_capability(9, 0);
  testing::set_has_code(true);
  EXPECT_NE(text.find("Emulated GPU has 7.0"), std::string::npos) << text;
  EXPECT_NE(text.find("Trainyard supports GPUs of compute capability 7.5 or later"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("TRAINYARD_CUDA_ARCHITECTURES"), std::string::npos) << text;
}

TEST(CudaEnvironment, WorkspacesShrinkWithTheDevice) {
  constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
  for (const int64_t large : {16 * kGiB, 80 * kGiB}) {
    EXPECT_EQ(attention_workspace_max(large), 512 * kMiB);
    EXPECT_EQ(scores_bytes_max(large), (large < 32 * kGiB ? 256 : 512) * kMiB);
    EXPECT_EQ(convolution_workspace_least(large), 256 * kMiB);
    EXPECT_EQ(matmul_workspace_max(large), 32 * kMiB);
  }
  // A driver keeps some megabytes of the memory for itself, and another driver keeps others.
  for (const int64_t small : {2 * kGiB, 2 * kGiB - 40 * kMiB, 2 * kGiB - 130 * kMiB}) {
    EXPECT_EQ(attention_workspace_max(small), 64 * kMiB);
    EXPECT_EQ(scores_bytes_max(small), 32 * kMiB);
    EXPECT_EQ(convolution_workspace_least(small), 32 * kMiB);
    EXPECT_EQ(matmul_workspace_max(small), 16 * kMiB);
  }
  EXPECT_EQ(attention_workspace_max(4864 * kMiB), 160 * kMiB) << "a MIG instance of 5 GB";
  EXPECT_EQ(scores_bytes_max(32 * kGiB - 300 * kMiB), 512 * kMiB) << "a GPU of 32 GB";
  EXPECT_GT(scores_bytes_max(0), 0);
}

TEST(CudaEnvironment, ADriverThatIsTooOldIsNamedWithTheOneThatIsNeeded) {
  EXPECT_EQ(driver_refusal(12020, 13000, "535.104.05"),
            "the NVIDIA driver 535.104.05 supports CUDA 12.2, this build needs CUDA 13.0: install "
            "driver 580 or later");
  EXPECT_EQ(driver_refusal(11040, 12090, ""),
            "the NVIDIA driver supports CUDA 11.4, this build needs CUDA 12.9: install driver 525 "
            "or later");
  EXPECT_EQ(driver_refusal(0, 13000, ""), "no NVIDIA driver is loaded on this machine");
  testing::set_driver_cuda(12020);
  const CudaError error = refusal();
  testing::set_driver_cuda(CUDART_VERSION);
  EXPECT_EQ(error.code(), cudaErrorInsufficientDriver);
  EXPECT_NE(std::string(error.what()).find("supports CUDA 12.2"), std::string::npos);
}

TEST(CudaEnvironment, AGpuThatAnotherProcessHasForItselfIsBusyAndNotIll) {
  testing::set_devices_busy(true);
  const CudaError error = refusal();
  testing::set_devices_busy(false);
  EXPECT_EQ(error.fault(), CudaFault::kBusy);
  EXPECT_EQ(error.code(), cudaErrorDevicesUnavailable);
  EXPECT_EQ(refusal().code(), 0) << "it is free again";
}

// None of these is the GPU's fault, so it must not be quarantined, and the message says what to do.
TEST(CudaEnvironment, AHostOnWhichCudaDoesNotStartIsBlamedAndToldTheRemedy) {
  struct Case {
    int error;
    const char* remedy;
  };
  for (const Case c : {Case{802, "systemctl start nvidia-fabricmanager"}, Case{803, "reboot"},
                       Case{804, "cuda-compat"}, Case{34, "stub"}, Case{3, "nvidia-smi"},
                       Case{999, "nvidia-modprobe"}, Case{100, "/dev/nvidia*"}}) {
    testing::set_start_fault(c.error);
    const CudaError error = refusal();
    testing::set_start_fault(0);
    EXPECT_EQ(error.fault(), CudaFault::kHost) << c.error;
    EXPECT_EQ(error.code(), c.error);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("looking for GPUs: ")) << text;
    EXPECT_NE(text.find(c.remedy), std::string::npos) << text;
  }
  EXPECT_EQ(refusal().code(), 0) << "the host is mended";
}

TEST(CudaEnvironment, AThreadThatWaitsSleepsWhereCoresAreFew) {
  static_assert(sleeps_while_waiting(/*cores=*/1, /*ranks=*/1));
  static_assert(sleeps_while_waiting(2, 1));
  static_assert(!sleeps_while_waiting(3, 1));
  static_assert(sleeps_while_waiting(16, 8));
  static_assert(!sleeps_while_waiting(17, 8));
}

/// The number of waits that poll while a device with so many cores synchronizes and stages a copy.
int64_t polling_waits_with(int cores, unsigned expected_flags) {
  testing::forget_contexts();
  const Device device(0, cores);
  EXPECT_EQ(testing::context_flags(0), expected_flags);
  const int64_t before = testing::polling_host_waits();
  Staging staging(device);
  const DeviceMemory there = device.allocate(64);
  const std::vector<std::byte> bytes(64);
  for (int i = 0; i < 8; ++i) staging.copy_to_device(there.get(), bytes);  // slots are used again
  device.synchronize();
  return testing::polling_host_waits() - before;
}

TEST(CudaEnvironment, HowThreadsWaitIsSetBeforeTheContextIsMade) {
  EXPECT_EQ(polling_waits_with(/*cores=*/2, cudaDeviceScheduleBlockingSync), 0);
  EXPECT_GT(polling_waits_with(/*cores=*/8, cudaDeviceScheduleAuto), 0);
  testing::forget_contexts();
}

TEST(CudaEnvironment, StagingShrinksWithTheDevice) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  EXPECT_EQ(Staging::slot_bytes(80 * 1024 * kMiB), 8 * kMiB);
  EXPECT_EQ(Staging::slot_bytes(8 * 1024 * kMiB), 8 * kMiB);
  EXPECT_EQ(Staging::slot_bytes(4864 * kMiB), 4 * kMiB) << "a MIG instance of 5 GB";
  EXPECT_EQ(Staging::slot_bytes(0), kMiB);

  testing::set_device_memory(4 * 1024 * kMiB);
  const Device small(0);
  testing::set_device_memory(80 * 1024 * kMiB);
  const int64_t before = testing::device_bytes();
  Staging staging(small);
  EXPECT_EQ(testing::device_bytes() - before, 32 * kMiB);
  // A copy larger than a slot is split into pieces.
  std::vector<std::byte> bytes(9 * kMiB + 5);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
  const DeviceMemory there = small.allocate(std::ssize(bytes));
  staging.copy_to_device(there.get(), bytes);
  small.synchronize();
  EXPECT_EQ(std::memcmp(there.get(), bytes.data(), bytes.size()), 0);
}

TEST(CudaEnvironment, ARecordingIsOnTheDeviceBeforeItsFirstReplay) {
  CudaBackend cuda(0);
  const int64_t before = testing::uploaded_recordings();
  const auto recording = cuda.record([] {});
  EXPECT_EQ(testing::uploaded_recordings(), before + 1);
}

}  // namespace
}  // namespace trainyard::cuda
