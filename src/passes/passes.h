// src/passes/passes.h: transforms a graph between its construction and its plan. Each pass
// preserves the values of marked outputs, parameters and state. README.md describes the passes and
// how to inspect them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/graph/graph.h"
#include "src/passes/processor.h"

namespace trainyard {

/// Selects the activations that the backward pass computes again, instead of keeping them.
enum class Recompute : uint8_t {
  kNone,
  kBlocks,  // all activations between the narrow places of the network
  kFull     // the same, with about the square root of the number of places
};
/// Returns the value for "none", "blocks" or "full"; nothing for another name.
std::optional<Recompute> find_recompute(std::string_view name);
std::string_view name_of(Recompute recompute);

/// How activations, their gradients and the weights of products are stored and multiplied. Sums,
/// losses, statistics, parameters, their gradients and the optimizer are always F32.
enum class Precision : uint8_t { kFp32, kBf16, kTf32, kFp16 };
/// Returns the value for "fp32", "bf16", "tf32" or "fp16"; nothing for another name.
std::optional<Precision> find_precision(std::string_view name);
std::string_view name_of(Precision precision);

struct PassOptions {
  bool fold = true;       // replace computed constants by ConstantOfShape
  bool dead_code = true;  // do not compute unused values
  bool fuse = true;       // fuse nodes, for fewer sweeps over memory
  bool layouts = true;    // store rank-4 activations channels-last if the ops accept it
  bool copies = true;     // keep 16-bit copies of parameters from step to step, on a GPU
  bool lanes = true;      // run gradients of weights aside in short steps, on a GPU (plan/lanes.h)
};
/// Returns all passes except those named in TRAINYARD_WITHOUT_PASSES ("fuse,dead_code"), to find
/// out whether a pass causes a fault. An unknown name is a fault.
PassOptions default_passes();

/// Runs the passes in order, with `graph.verify()` after each in debug builds.
void run_passes(Graph& graph, const PassOptions& passes, Recompute recompute, Precision precision,
                Processor processor = Processor::kCpu);

}  // namespace trainyard
