// tests/cuda/workspace.h: convolutions in a workspace that lies elsewhere than the arena puts it,
// or holds something else. An engine of cuDNN that reads what it has not written, or that counts on
// more alignment than it gets, does not refuse: it computes something else.
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

/// What kernels get instead of what the arena has for them.
struct WorkspaceChange {
  /// Bytes behind the place that the arena has for it: of convolutions and their gradients alone,
  /// as cuBLASLt refuses other places.
  int64_t offset = 0;
  std::optional<int> fill;  // every byte of it in front of each run; else what was left there
};

/// `inner` with such workspaces. Kernels are not recorded.
class WorkspaceBackend final : public ForwardingBackend {
 public:
  struct Use {
    std::string node, op;
    int64_t bytes = 0;
    uintptr_t address = 0;
  };

  WorkspaceBackend(Backend& inner, WorkspaceChange change)
      : ForwardingBackend(inner), change_(change) {}
  /// Of the kernels that ran in a changed workspace, in their order.
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
/// channels), beside the plain loops.
struct WorkspaceRun {
  double worst = 0;   // largest difference, relative to the largest number of its tensor
  std::string where;  // "h/grad.1[0]"
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
/// bf16 and fp16, both layouts, memory kept and reused.
std::vector<WorkspaceCase> workspace_cases();

/// In every case the result is right, and the same bits whatever the workspace held. Prints each
/// run, and with it where workspaces lay and which algorithms the backend chose.
void expect_right_in_any_workspace(Backend& cuda);

}  // namespace trainyard::testing
