// src/runtime/cuda/fused_attention.h: attention or its gradient with cuDNN's graph API, prepared
// once: 16-bit operands on tensor cores, and scores only in tiles.
//
// The formulas are those of kernels/attention.h, without dropout. The probabilities, and in the
// gradient also ds, are rounded to the operands' format before they are multiplied. cuDNN's engines
// recognize attention by the structure of the graph, which determines each operation below: NVIDIA,
// "cuDNN Frontend", operations/Attention (the composite form), and its sources.
//
// In the usual form of the gradient, blocks add to an F32 dq in a nondeterministic order, which
// cuDNN's notes do not report. The graph here has no such tensor: engines then store ds in the
// workspace and multiply it by k in a fixed order, or compute dq by itself. cuDNN's heuristics do
// not propose the latter: preferred_engines() names it.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/view.h"
#include "src/runtime/cuda/budgets.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/dnn.h"

namespace trainyard::cuda {

/// The first version of cuDNN whose attention is used, in the form of cudnnGetVersion(). Gradients
/// could be wrong before: on GPUs of compute capability 9.0 up to 9.17, which read workspace that
/// nothing had written (TransformerEngine, issue 2186); on all GPUs before 9.16 if Tk % 128 != 0.
constexpr size_t kAttentionVersionMin = 91801;
/// Returns a sentence about a version that is too old: what it costs and what to install. Empty if
/// it is not too old.
std::string attention_version_warning(size_t version);

/// Bytes of ds for this number of sequences and heads, as engines store it.
int64_t ds_bytes(const kernels::AttentionDims& d, int64_t sequences, int64_t heads);

struct AttentionProblem {
  bool backward = false;
  kernels::AttentionDims dims;  // without dropout; positions and key counts have no member here
  kernels::cuda::Format format =
      kernels::cuda::Format::kBf16;  // 16-bit format of all tensors except log_sum_exp
};

/// Returns the engines to ask before those that cuDNN proposes, for the whole batch. For the
/// gradient on GPUs of compute capability 10 and 11, cuDNN proposes only the engine of an A100, and
/// has a deterministic one for these GPUs, which stores no ds: in cuDNN 9.19 it needs no workspace.
/// Source: cuDNN Frontend, override_heuristics_query() in
/// scaled_dot_product_flash_attention.h. `capability` is 103 for 10.3; `version` is that of cuDNN.
std::vector<EngineChoice> preferred_engines(const AttentionProblem& problem, int capability,
                                            size_t version);

/// The graph of a problem. It needs no device unless `handle` is given.
class AttentionGraph {
 public:
  /// Names of the tensors that have memory. Scalars are passed by the host; delta, F32 [N, H, Tq],
  /// is memory for the engine.
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

  /// `y_row` is the stride in elements between positions of y and dy.
  AttentionGraph(const AttentionProblem& problem, int64_t y_row, cudnnHandle_t handle);
  cudnnBackendDescriptor_t graph() const { return graph_.get(); }

 private:
  std::vector<BackendDescriptor> parts_;  // tensors and operations
  BackendDescriptor graph_;
};

/// A graph and its plan, for a whole batch, or for equal parts of it that run one after another.
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

  /// Returns the plan for a problem, shared by its nodes, since cuDNN compiles it for most of a
  /// second. nullptr if cuDNN does not support the problem, or has no engine for it that may be
  /// used. A batch whose ds takes more than `workspace_max` bytes is computed in parts
  /// (attention_workspace_max(), budgets.h).
  static std::shared_ptr<const FusedAttention> find(
      const Device& device, const AttentionProblem& problem,
      int64_t workspace_max = kAttentionWorkspaceMost);

  int64_t workspace_bytes() const { return delta_bytes_ + plan_->workspace_bytes(); }
  /// Asynchronous on the device's stream. Operands must be aligned to 16 bytes.
  void run(const Forward& a, void* workspace) const;
  void run(const Backward& a, void* workspace) const;

 private:
  FusedAttention(const Device& device, const AttentionProblem& problem, int64_t workspace_max);
  /// Sets plan_ for parts of the current sizes: that of `choice`, or if it is nullptr of the first
  /// engine that cuDNN proposes. Nothing if it cannot be used.
  void prepare(const Device& device, int64_t workspace_max, const EngineChoice* choice);
  /// Whether the plan of a part of the problem runs, with one memory for all tensors.
  static bool passes_trial(const Device& device, const AttentionProblem& part, const DnnPlan& plan);

  AttentionProblem problem_;
  int64_t sequences_, heads_;  // sizes of one part
  std::optional<AttentionGraph> graph_;
  std::optional<DnnPlan> plan_;  // after graph_, to which it refers
  int64_t delta_bytes_ = 0;
  float scale_, lowest_ = std::numeric_limits<float>::lowest(), one_ = 1;
};

}  // namespace trainyard::cuda
