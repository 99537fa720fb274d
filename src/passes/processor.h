// src/passes/processor.h: the kind of device that a program will run on.
//
// Graph and plan are the same for both kinds, with two exceptions. A GPU computes the loss of a
// head without storing the scores (head_loss.h); the plan has no memory for them, so a CPU cannot
// run it. A GPU's plan also has 16-bit copies of biases, and masks of ReLU, a few KiB in all.
#pragma once

#include <cstdint>

namespace trainyard {

enum class Processor : uint8_t { kCpu, kGpu };

}  // namespace trainyard
