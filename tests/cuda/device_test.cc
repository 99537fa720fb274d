// Catches: whole networks that a GPU trains to something else than the CPU does. Needs a GPU; skips
// without one.
#include <gtest/gtest.h>

#include <cstdio>

#include "src/base/cores.h"
#include "src/runtime/cuda_module.h"
#include "src/train/device_check.h"

namespace trainyard {
namespace {

TEST(CudaDevice, PassesItsCheck) {
  const auto cuda = open_cuda_backend(TRAINYARD_TEST_CUDA_MODULE, 0);
  if (!cuda.ok()) GTEST_SKIP() << "no GPU: " << cuda.error().message;
  const auto cpu = make_cpu_backend(usable_cores());
  const DeviceCheck check = check_device(**cuda, *cpu, [](const DeviceCheckRow& row) {
    std::printf("%-26s loss %.1e, weights %.1e\n", row.network.c_str(), row.loss, row.weights);
    return true;
  });
  EXPECT_EQ(check.failure(), "");
}

}  // namespace
}  // namespace trainyard
