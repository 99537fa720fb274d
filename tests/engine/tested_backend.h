// tests/engine/tested_backend.h: the device on which tests of whole jobs train: the CPU, or the
// device that TRAINYARD_TEST_DEVICE names ("gpu-0"). With it, scripts/gpu_check applies the CPU's
// tests to a GPU: the losses of PyTorch, resumed runs and plans.
#pragma once

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "src/runtime/open_backend.h"

namespace trainyard::testing {

/// `threads` applies to the CPU only.
inline std::unique_ptr<Backend> make_tested_backend(int threads) {
  const char* const device = std::getenv("TRAINYARD_TEST_DEVICE");
  if (device == nullptr) return make_cpu_backend(threads);
  auto opened = open_backend(std::string("devices/") + device, threads);
  if (!opened.ok()) throw std::runtime_error(opened.error().message);
  return std::move(*opened);
}

}  // namespace trainyard::testing
