// src/runtime/cuda/fused_attention.h: attention, or its gradient, through cuDNN's graph API,
// prepared once: operands of 16 bits on tensor cores, scores in tiles.
//
// The formulas are those of kernels/attention.h, without dropout; the probabilities, and in the
// gradient those and ds, are rounded to the operands' format before they are multiplied. cuDNN's
// engines know attention by the form of the graph, which is why each operation stands as it does:
// NVIDIA, "cuDNN Frontend", operations/Attention (the composite form), and its sources.
//
// In the usual form of the gradient, blocks add to an F32 dq in the order in which they come to
// it, and cuDNN's notes do not tell. Here the graph has no such tensor: engines then keep ds in
// workspace and multiply it by k in a fixed order.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/view.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/dnn.h"

namespace trainyard::cuda {

/// Most that ds may need in workspace, 2 bytes for each pair of positions of a head; a batch that
/// needs more is computed in parts. A fixed budget: the choice does not depend on what happens to
/// be free.
constexpr int64_t kAttentionWorkspaceMax = int64_t{512} << 20;

/// Bytes of ds of so many sequences and heads, as engines keep it.
int64_t ds_bytes(const kernels::AttentionDims& d, int64_t sequences, int64_t heads);

struct AttentionProblem {
  bool backward = false;
  kernels::AttentionDims dims;                                  // without dropout
  kernels::cuda::Format format = kernels::cuda::Format::kBf16;  // of all but log_sum_exp: 16 bits
};

/// The graph of a problem. Made without a device, unless `handle` is given.
class AttentionGraph {
 public:
  /// Names of the tensors that have memory. Numbers are given by the host; delta is F32 [N, H, Tq],
  /// for the engine.
  enum Name : int64_t {
    kScale = 1,
    kLowest,
    kOne,
    kQuery,
    kKey,
    kValue,
    kResult,
    kLogSumExp,
    kResultGrad,
    kQueryGrad,
    kKeyGrad,
    kValueGrad,
    kDelta,
    kFirstVirtual,
  };

  /// `y_row`: elements from one position of y and dy to the next.
  AttentionGraph(const AttentionProblem& problem, int64_t y_row, cudnnHandle_t handle);
  cudnnBackendDescriptor_t graph() const { return graph_.get(); }

 private:
  std::vector<BackendDescriptor> parts_;  // tensors and operations
  BackendDescriptor graph_;
};

/// A graph and its plan, for a whole batch or for equal parts of it that run one after another.
class FusedAttention {
 public:
  struct Forward {
    const void *q, *k, *v;
    void* y;
    float* log_sum_exp;
  };
  struct Backward {
    const void *q, *k, *v, *y;
    const float* log_sum_exp;
    const void* dy;
    void *dq, *dk, *dv;
  };

  /// The nodes of one problem share it: to make a plan, cuDNN compiles for most of a second.
  /// nullptr where the problem is not for cuDNN, or cuDNN has no engine for it that is allowed.
  static std::shared_ptr<const FusedAttention> find(const Device& device,
                                                    const AttentionProblem& problem,
                                                    int64_t workspace_max = kAttentionWorkspaceMax);

  int64_t workspace_bytes() const { return delta_bytes_ + plan_->workspace_bytes(); }
  /// Asynchronous on the device's stream. Operands begin at multiples of 16 bytes.
  void run(const Forward& a, void* workspace) const;
  void run(const Backward& a, void* workspace) const;

 private:
  FusedAttention(const Device& device, const AttentionProblem& problem, int64_t workspace_max);

  AttentionProblem problem_;
  int64_t sequences_, heads_;  // of one part
  std::optional<AttentionGraph> graph_;
  std::optional<DnnPlan> plan_;  // behind the graph, to which it refers
  int64_t delta_bytes_ = 0;
  float scale_, lowest_ = std::numeric_limits<float>::lowest(), one_ = 1;
};

}  // namespace trainyard::cuda
