// Catches: a cuDNN engine whose results depend on the place or the content of its workspace. Needs
// a GPU; skips without one.
//
// `cuda_parity_test --gtest_filter='Workspace.*'` prints which engine uses which workspace, and the
// errors of the results. The last test shows the effect of a workspace at an odd multiple of 64
// bytes: it reports and never fails, since Trainyard provides no such workspace.
// CUBLASLT_LOG_LEVEL, CUDNN_LOGLEVEL_DBG and compute-sanitizer show more.
#include "tests/cuda/workspace.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "src/runtime/cuda_error.h"
#include "src/runtime/cuda_module.h"
#include "tests/cuda/tested_module.h"

namespace trainyard {
namespace {

std::unique_ptr<Backend> open_gpu() {
  auto opened = open_cuda_backend(testing::tested_module(), 0);
  if (!opened.ok()) {
    std::printf("no GPU: %s\n", opened.error().message.c_str());
    return nullptr;
  }
  // Records the choices without timing.
  (*opened)->use_algorithms(
      std::make_shared<Algorithms>(Algorithms::Options{.folder = {}, .times = false}));
  return std::move(*opened);
}

TEST(Workspace, IsReadByNoEngineBeforeItIsWritten) {
  const auto cuda = open_gpu();
  if (cuda == nullptr) GTEST_SKIP() << "no GPU";
  testing::expect_right_in_any_workspace(*cuda);
}

// This test is the last one, since it may break the GPU's context.
TEST(Workspace, WhatBecomesOfItAtOddMultiplesOf64) {
  const auto cuda = open_gpu();
  if (cuda == nullptr) GTEST_SKIP() << "no GPU";
  for (const testing::WorkspaceCase& c : testing::workspace_cases()) {
    for (const int64_t offset : {64, 128, 192}) {
      for (const std::optional<int> fill : {std::optional<int>(), std::optional(0)}) {
        const std::string name = name_of(c) + ", " + std::to_string(offset) + " bytes further" +
                                 (fill.has_value() ? ", zeroed" : "");
        try {
          const testing::WorkspaceRun run = run_in_workspace(*cuda, c, {offset, fill});
          std::printf("workspace: %s: differs by %.1e (%s)\n", name.c_str(), run.worst,
                      run.where.c_str());
        } catch (const CudaError& e) {
          std::printf("workspace: %s: refused: %s\n", name.c_str(), e.what());
          cuda->synchronize();  // throws if the context is broken
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard
