// src/runtime/cuda/offers.h: notes which fused operations the libraries offer, for the report of
// scripts/gpu_check. This is known only on a GPU: cuBLASLt and cuDNN document it in part.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::cuda {

enum class Offer : uint8_t {
  kNone,      // the library has no algorithm for the operation
  kOffered,   // an algorithm of the library may be used
  kLosesNan,  // an algorithm was tested, and gave a number for a NaN
};

/// Appends a line of JSON to the file that TRAINYARD_LIBRARY_OFFERS names, once per process for
/// equal lines; does nothing if the variable is not set. All texts are printable ASCII without
/// quotes and backslashes. `problem` identifies the problem with all its sizes. Errors are ignored.
/// Thread-safe; several processes may write to the same file.
void note_offer(const std::string& library, const std::string& operation,
                const std::string& formats, const std::string& problem, Offer offer);

}  // namespace trainyard::cuda
