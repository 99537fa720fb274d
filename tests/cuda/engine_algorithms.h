// tests/cuda/engine_algorithms.h: selects the fakes' engines for convolutions that would run on our
// own kernels, so that the same cases test both.
#pragma once

#include <cudnn.h>

#include <string>

#include "src/runtime/algorithms.h"

namespace trainyard::testing {

class EngineAlgorithms final : public Algorithms {
 public:
  EngineAlgorithms() : Algorithms(Options{{}, /*times=*/false}) {}
  bool choose(const std::string& device_class, const std::string& key,
              const AlgorithmProblem& problem) override {
    if (!key.ends_with(" direct")) return Algorithms::choose(device_class, key, problem);
    // Tensor cores if allowed, else the first good engine.
    for (const char* engine : {"cudnn engine=1 ", "cudnn engine=4 "}) {
      const std::string words = engine + std::to_string(CUDNN_KNOB_TYPE_TILE_SIZE) + "=7";
      for (const char* result : {"", "bf16 ", "f16 ", "F32 "}) {
        if (problem.take(result + words)) return true;
      }
    }
    return false;
  }
};

}  // namespace trainyard::testing
