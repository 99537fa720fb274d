// src/planning/generation_programs.h: the programs by which a language model continues texts, with
// the keys and values of earlier tokens kept (src/models/generation.h). Both share the weights and
// the caches in one persistent segment.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "src/base/result.h"
#include "src/models/generation.h"
#include "src/models/model_spec.h"
#include "src/plan/device_traits.h"
#include "src/plan/program.h"

namespace trainyard {

struct GenerationProgram {
  Program program;
  TensorId input = kNoTensor;      // I32 [rows, tokens]
  TensorId positions = kNoTensor;  // I32 [rows, tokens]; kNoTensor if no layer reads them
  TensorId output = kNoTensor;     // scores [rows, tokens, vocabulary], or with their axes merged
};

struct GenerationPrograms {
  GenerationProgram fill;  // reads kFillTokens of each text at most, and only fills the caches
  GenerationProgram step;  // reads one token of each text, and computes the scores of the next
  int64_t fill_tokens = 0;

  /// Bytes of a device for both programs, without the workspace of their kernels.
  int64_t persistent_bytes() const;
  int64_t transient_bytes() const;
};

/// The most tokens of a text that `fill` reads at once: as many rows as a product needs to be
/// limited by its arithmetic and not by reading the weights.
inline constexpr int64_t kFillTokens = 64;

/// How weights may be stored, by name; others are stored as typed.
using WeightStorage = std::map<std::string, Storage>;

/// Compiles the programs for `rows` texts of at most `capacity` tokens. Weights are stored as
/// `storage` says where the kernels read such numbers directly: on a CPU those of look-ups and
/// products. Refusal: FAILED_PRECONDITION/GENERATION_LAYER_UNSUPPORTED names a layer that needs the
/// whole text.
Result<GenerationPrograms> compile_generation(const ModelSpec& spec,
                                              const ModelInterface& interface, int64_t rows,
                                              int64_t capacity, DeviceTraits traits,
                                              const WeightStorage& storage = {});

}  // namespace trainyard
