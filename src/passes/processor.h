// src/passes/processor.h: what a program will run on.
//
// A graph and its plan are the same for both, but for what only a GPU computes without storing it
// (head_loss.h): such a plan needs less memory, and the other kind cannot run in it. A GPU's has
// copies of biases and masks of ReLU besides, a few KiB.
#pragma once

#include <cstdint>

namespace trainyard {

enum class Processor : uint8_t { kCpu, kGpu };

}  // namespace trainyard
