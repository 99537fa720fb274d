// tests/cuda/tested_module.h: the CUDA module that tests for a GPU open.
#pragma once

#include <cstdlib>
#include <string>

namespace trainyard::testing {

/// The one that TRAINYARD_CUDA_MODULE names, else that of the build.
inline std::string tested_module() {
  const char* const path = std::getenv("TRAINYARD_CUDA_MODULE");
  return path != nullptr ? path : TRAINYARD_TEST_CUDA_MODULE;
}

}  // namespace trainyard::testing
