// tests/cuda/workspace.h: convolutions in a workspace at another place than the arena's, or with
// other content. A cuDNN engine that reads its workspace before writing it, or relies on more
// alignment than it gets, does not refuse: it computes wrong results.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/passes/passes.h"
#include "src/runtime/forwarding_backend.h"

namespace trainyard::testing {

/// How the kernels' workspace differs from the arena's.
struct WorkspaceChange {
  /// The distance from the arena's place in bytes; only for convolutions and their gradients, since
  /// cuBLASLt refuses other places.
  int64_t offset = 0;
  std::optional<int> fill;  // the value of every byte before each run; else unchanged
};

/// Runs `inner` with changed workspaces. Kernels are not recorded.
class WorkspaceBackend final : public ForwardingBackend {
 public:
  struct Use {
    std::string node, op;
    int64_t bytes = 0;
    uintptr_t address = 0;
  };

  WorkspaceBackend(Backend& inner, WorkspaceChange change)
      : ForwardingBackend(inner), change_(change) {}
  /// The kernels that ran in a changed workspace, in the order of their runs.
  const std::vector<Use>& uses() const { return uses_; }

  std::unique_ptr<Kernel> prepare(const Graph& graph, const Node& node) override;
  std::unique_ptr<Recording> record(const std::function<void()>& /*submit*/) override {
    return nullptr;
  }

 private:
  class ChangedKernel;
  WorkspaceChange change_;
  std::vector<Use> uses_;
};

/// A run of the case whose filter gradient was wrong on the first GPU (a 1x1 convolution of 8
/// channels), compared with the reference loops.
struct WorkspaceRun {
  double worst = 0;   // the largest difference, relative to the largest number of its tensor
  std::string where;  // such as "h/grad.1[0]"
  std::map<std::string, std::vector<double>> values;
  std::vector<WorkspaceBackend::Use> uses;
};
struct WorkspaceCase {
  Precision precision = Precision::kBf16;
  bool channels_last = false;
  bool keep_all = false;  // no tensor shares memory with another
};
std::string name_of(const WorkspaceCase& c);
WorkspaceRun run_in_workspace(Backend& cuda, const WorkspaceCase& c, const WorkspaceChange& change);
/// All combinations of bf16 and fp16, both layouts, and memory kept and reused.
std::vector<WorkspaceCase> workspace_cases();

/// Expects every case to be right and to give the same bits whatever the workspace contains. Prints
/// each run, with the places of the workspaces and the chosen algorithms.
void expect_right_in_any_workspace(Backend& cuda);

}  // namespace trainyard::testing
