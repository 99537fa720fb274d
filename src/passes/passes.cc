#include "src/passes/passes.h"

#include <cstdlib>

#include "src/base/check.h"
#include "src/passes/assign_layouts.h"
#include "src/passes/assign_precision.h"
#include "src/passes/fuse.h"
#include "src/passes/fuse_convolutions.h"
#include "src/passes/fuse_head.h"
#include "src/passes/fuse_low_rank.h"
#include "src/passes/fuse_pools.h"
#include "src/passes/fuse_products.h"
#include "src/passes/fuse_sums.h"
#include "src/passes/keep_copies.h"
#include "src/passes/recompute.h"
#include "src/passes/recompute_gates.h"
#include "src/passes/simplify.h"

namespace trainyard {
namespace {

void check(const Graph& graph) {
#ifndef NDEBUG
  graph.verify();
#else
  (void)graph;  // in release builds, compile() verifies the final graph only
#endif
}

}  // namespace

std::optional<Recompute> find_recompute(std::string_view name) {
  for (const Recompute r : {Recompute::kNone, Recompute::kBlocks, Recompute::kFull}) {
    if (name_of(r) == name) return r;
  }
  return std::nullopt;
}

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kBlocks:
      return "blocks";
    case Recompute::kFull:
      return "full";
  }
  return "?";
}

PassOptions default_passes() {
  PassOptions passes;
  const char* without = std::getenv("TRAINYARD_WITHOUT_PASSES");
  if (without == nullptr) return passes;
  std::string_view rest = without;
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(name.size() < rest.size() ? name.size() + 1 : rest.size());
    bool* pass = name == "fold"        ? &passes.fold
                 : name == "dead_code" ? &passes.dead_code
                 : name == "fuse"      ? &passes.fuse
                 : name == "layouts"   ? &passes.layouts
                 : name == "copies"    ? &passes.copies
                 : name == "lanes"     ? &passes.lanes
                                       : nullptr;
    TRAINYARD_CHECK(pass != nullptr, "TRAINYARD_WITHOUT_PASSES: there is no pass " +
                                         std::string(name) +
                                         "; expected fold, dead_code, fuse, layouts, copies, "
                                         "lanes");
    *pass = false;
  }
  return passes;
}

std::optional<Precision> find_precision(std::string_view name) {
  for (const Precision p :
       {Precision::kFp32, Precision::kTf32, Precision::kBf16, Precision::kFp16}) {
    if (name_of(p) == name) return p;
  }
  return std::nullopt;
}

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kTf32:
      return "tf32";
    case Precision::kFp16:
      return "fp16";
    case Precision::kBf16:
      return "bf16";
  }
  return "?";
}

void run_passes(Graph& graph, const PassOptions& passes, Recompute recompute, Precision precision,
                Processor processor) {
  if (passes.fold) {
    fold_constants(graph);
    check(graph);
  }
  if (passes.dead_code) {
    remove_dead_code(graph);
    check(graph);
  }
  if (passes.fuse) {
    fuse(graph);
    check(graph);
    fuse_pools(graph);
    check(graph);
  }
  if (recompute != Recompute::kNone) {
    recompute_activations(graph, recompute);
    check(graph);
  } else if (passes.fuse) {
    recompute_gates(graph);
    check(graph);
  }
  if (passes.fuse) {
    fuse_convolutions(graph);
    check(graph);
    fuse_products(graph, processor);
    check(graph);
    fuse_sums(graph);
    check(graph);
    fuse_head(graph, processor);
    check(graph);
    if (processor == Processor::kCpu) {
      fuse_low_rank(graph);
      check(graph);
    }
    if (processor == Processor::kGpu) {
      fuse_relu_products(graph);
      check(graph);
    }
  }
  if (passes.layouts) {
    assign_layouts(graph);
    check(graph);
  }
  switch (precision) {
    case Precision::kFp32:
      return;
    case Precision::kTf32:
      allow_tf32(graph);
      break;
    case Precision::kBf16:
      assign_half(graph, Storage::kBf16, processor);
      break;
    case Precision::kFp16:
      assign_half(graph, Storage::kF16, processor);
      break;
  }
  check(graph);
  if (passes.copies && processor == Processor::kGpu) {
    keep_copies(graph);
    check(graph);
  }
}

}  // namespace trainyard
