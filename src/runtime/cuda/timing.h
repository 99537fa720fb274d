// src/runtime/cuda/timing.h: which of several algorithms for one problem is fastest on this device.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "src/runtime/algorithms.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// One algorithm that may be taken.
struct Candidate {
  std::string choice;
  int64_t workspace_bytes = 0;
};

/// Submits candidate `index` to the device's stream. `operands` lie where the problem's own will,
/// in the order of their sizes.
using RunCandidate =
    std::function<void(size_t index, std::span<void* const> operands, void* workspace)>;

/// Times them, best first as the library proposes them: the least of some runs each, in this order.
/// A later one is taken only where it is clearly faster; one that is much slower than the best so
/// far ends after one run. Operands of these sizes hold random numbers of about 1 in whatever
/// format they are read; they are allocated for the time that it takes. A candidate that does not
/// start is left out, and nothing is left where none does. One alone is not timed. Where the device
/// has no room, the first is taken. A fault that stays is thrown.
std::optional<TimedChoice> time_candidates(const Device& device,
                                           std::span<const Candidate> candidates,
                                           std::span<const int64_t> operand_bytes,
                                           const RunCandidate& run);

/// Throws what is wrong with the device if it does not go on after an error, as where a kernel went
/// astray. Waits for what was submitted. `error`: in words.
void check_sound(const Device& device, const std::string& error);

}  // namespace trainyard::cuda
