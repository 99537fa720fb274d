// tests/cuda/tested_module.h: the CUDA module that tests with a GPU open.
#pragma once

#include <cstdlib>
#include <string>

namespace trainyard::testing {

/// The path in TRAINYARD_CUDA_MODULE, else the module of the build.
inline std::string tested_module() {
  const char* const path = std::getenv("TRAINYARD_CUDA_MODULE");
  return path != nullptr ? path : TRAINYARD_TEST_CUDA_MODULE;
}

}  // namespace trainyard::testing
