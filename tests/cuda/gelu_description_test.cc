// Catches: a graph of a product with the exact GELU, or with its gradient, for which cuDNN has no
// engine: matrices with four dimensions instead of three, an operation too many, another type. The
// tests call the real library, which compiles its kernels for described GPUs; only the driver is a
// fake.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/gelu_product.h"
#include "tests/cuda/described_device.h"

namespace trainyard::cuda {
namespace {

using kernels::cuda::Format;

class GeluDescription : public ::testing::Test {
 protected:
  // Loads the fake driver before cuDNN loads the driver: a library of the same name is then reused.
  static void SetUpTestSuite() {
    ASSERT_NE(dlopen(TRAINYARD_TEST_FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
  }
};

/// Returns the workspace of the first engine that may be used and has a plan; -1: there is none.
int64_t workspace_of(const GeluProblem& p, cudnnBackendDescriptor_t device) {
  const GeluGraph graph(p, nullptr);
  for (const EngineChoice& choice :
       allowed_engines(graph.graph(), {p.format, p.tf32}, Engines::kFast, device)) {
    const RestoredEngine engine = restore_engine(graph.graph(), choice, device);
    const BackendDescriptor plan = described_plan(engine.config.get(), device);
    if (!plan) continue;
    std::printf("%s\n", words_of(choice).c_str());
    return dnn::get<int64_t>(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  }
  return -1;
}

struct NamedDevice {
  const char* name;
  BackendDescriptor (*make)();
};

TEST_F(GeluDescription, GpusWithTensorCoresHaveEngines) {
  // The two products around GELU in ViT-B/16, for 64 images.
  constexpr int64_t kRows = 64 * 197, kWidth = 768, kHidden = 4 * kWidth;
  for (const NamedDevice& named : {NamedDevice{"H100", h100}, NamedDevice{"A100", a100}}) {
    const BackendDescriptor device = named.make();
    if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
    const bool is_h100 = named.make == h100;  // all formats take 15 s of compilation
    for (const Format format : {Format::kBf16, Format::kF16, Format::kF32}) {
      if (!is_h100 && format != Format::kBf16) continue;
      const bool tf32 = format == Format::kF32;
      const std::vector<GeluProblem> problems = {
          {false, kRows, kHidden, kWidth, format, tf32, /*has_bias=*/true, /*keeps_pre=*/true},
          {false, kRows, kHidden, kWidth, format, tf32, /*has_bias=*/false, /*keeps_pre=*/true},
          {false, kRows, kHidden, kWidth, format, tf32, /*has_bias=*/true, /*keeps_pre=*/false},
          {true, kRows, kHidden, kWidth, format, tf32}};
      for (size_t i = 0; i < problems.size(); ++i) {
        SCOPED_TRACE(std::string(named.name) + ", problem " + std::to_string(i) + ", format " +
                     std::to_string(static_cast<int>(format)));
        const int64_t workspace = workspace_of(problems[i], device.get());
        EXPECT_GE(workspace, 0);
        EXPECT_LE(workspace, kMatmulWorkspaceMost);
      }
    }
  }
}

// Without TF32, products of F32 have no engine: they would need tensor cores.
TEST_F(GeluDescription, StrictF32HasNone) {
  const BackendDescriptor device = h100();
  if (!device) GTEST_SKIP() << "this cuDNN describes devices in another way";
  EXPECT_EQ(workspace_of({true, 128, 64, 64, Format::kF32, /*tf32=*/false}, device.get()), -1);
}

}  // namespace
}  // namespace trainyard::cuda
