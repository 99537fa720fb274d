// src/passes/passes.h: transformations of a graph between its construction and its plan. Each pass
// keeps the meaning of every marked output, parameter and state; README.md says what each does and
// how to inspect it.
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

/// Which activations are computed again in the backward pass instead of being kept.
enum class Recompute : uint8_t {
  kNone,
  kBlocks,  // all between the narrow places of the network
  kFull     // as kBlocks, with about the square root of as many places
};
/// "none", "blocks", "full".
std::optional<Recompute> find_recompute(std::string_view name);
std::string_view name_of(Recompute recompute);

/// How activations, their gradients and the weights of products are stored and multiplied. Sums,
/// losses, statistics, parameters, their gradients and the optimizer are F32 in both.
enum class Precision : uint8_t { kFp32, kBf16, kTf32, kFp16 };
/// "fp32", "bf16".
std::optional<Precision> find_precision(std::string_view name);
std::string_view name_of(Precision precision);

struct PassOptions {
  bool fold = true;       // constants are computed once
  bool dead_code = true;  // unused values are not computed
  bool fuse = true;       // several nodes in one sweep over memory
  bool layouts = true;    // rank-4 activations channels-last where the ops take it
};
/// All of them, without those that TRAINYARD_WITHOUT_PASSES names ("fuse,dead_code"): for finding
/// out whether a pass is to blame. An unknown name is a fault.
PassOptions default_passes();

/// Runs the passes in their order; `graph.verify()` after each in debug builds.
void run_passes(Graph& graph, const PassOptions& passes, Recompute recompute, Precision precision,
                Processor processor = Processor::kCpu);

}  // namespace trainyard
