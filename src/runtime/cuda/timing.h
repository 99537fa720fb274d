// src/runtime/cuda/timing.h: finds the fastest of several algorithms for one problem on this
// device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "src/runtime/algorithms.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// Whether an algorithm may be used, as one run of it shows: a library may propose an algorithm and
/// refuse to run it. `run` allocates memory, submits the algorithm to the device's stream and
/// returns whether its results are right. False if the algorithm does not run; throws CudaError for
/// a sticky fault. If the device has too little memory for the run, the algorithm counts as good,
/// unless `results_matter`: then std::bad_alloc is thrown.
bool passes_trial(const Device& device, bool results_matter, const std::function<bool()>& run);

/// Waits for the device's stream at the end of a scope, also after an exception, so that the memory
/// that the scope allocated before this object is not freed while submitted work uses it. Errors
/// are left to the next call.
class WaitsAtEnd {
 public:
  explicit WaitsAtEnd(const Device& device) : device_(device) {}
  ~WaitsAtEnd() { (void)cudaStreamSynchronize(device_.stream()); }
  WaitsAtEnd(const WaitsAtEnd&) = delete;
  WaitsAtEnd& operator=(const WaitsAtEnd&) = delete;

 private:
  const Device& device_;
};

/// An algorithm that may be chosen.
struct Candidate {
  std::string choice;
  int64_t workspace_bytes = 0;
};

/// Submits candidate `index` to the device's stream. `operands` are in the order of their sizes in
/// `operand_bytes`.
using RunCandidate =
    std::function<void(size_t index, std::span<void* const> operands, void* workspace)>;

/// Times candidates in the given order, best first as estimated by the library; the shortest of
/// several runs counts. A later candidate is chosen only if it is clearly faster; a much slower one
/// ends after one run. Operands of the given sizes are allocated meanwhile, and contain random
/// numbers of magnitude about 1 in any format. A candidate that does not start is skipped; the
/// result is empty if none starts. A single candidate is not timed. If the device has too little
/// memory, the first candidate is chosen. Throws CudaError for a sticky fault.
std::optional<TimedChoice> time_candidates(const Device& device,
                                           std::span<const Candidate> candidates,
                                           std::span<const int64_t> operand_bytes,
                                           const RunCandidate& run);

/// Throws if the device cannot continue after an error, for example after a kernel's invalid memory
/// access. Waits for all submitted work. `error` is the error's message.
void check_sound(const Device& device, const std::string& error);

}  // namespace trainyard::cuda
