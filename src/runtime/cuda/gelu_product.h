// src/runtime/cuda/gelu_product.h: a product with the exact GELU, or with its gradient, by one
// engine of cuDNN, which compiles such engines at run time. cuBLASLt has only the tanh form in its
// products. Without an engine, GELU is a kernel of its own, which reads and writes the result of
// the product once more.
//
//   forward    pre = a b + bias, c = gelu(pre)
//   gradient   c = gelu'(pre) (a b)
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/view.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/dnn.h"

namespace trainyard::cuda {

/// All matrices are row-major and dense: a [m, k], pre and c [m, n], bias [n]; b is [n, k] in the
/// forward pass, as the weights are stored, and [k, n] for the gradient.
struct GeluProblem {
  bool is_gradient = false;
  int64_t m = 0, n = 0, k = 0;
  kernels::cuda::Format format = kernels::cuda::Format::kBf16;  // of all operands and results
  bool tf32 = false;                                            // F32 operands may be rounded
  bool has_bias = false, keeps_pre = false;                     // forward
};

/// The graph of a problem. It needs no device unless `handle` is given.
class GeluGraph {
 public:
  /// Names of the tensors that have memory.
  enum Name : int64_t { kA = 1, kB, kBias, kPre, kC, kFirstVirtual };

  GeluGraph(const GeluProblem& problem, cudnnHandle_t handle);
  cudnnBackendDescriptor_t graph() const { return graph_.get(); }

 private:
  std::vector<BackendDescriptor> parts_;  // tensors and operations
  BackendDescriptor graph_;
};

/// An engine of cuDNN that was chosen for a problem.
class GeluProduct {
 public:
  struct Operands {
    const void *a, *b, *bias;
    void* pre;  // read by the gradient, written by the forward pass if the problem keeps it
    void* c;
  };
  /// The way without an engine: a product and a kernel.
  struct Separate {
    int64_t workspace_bytes;
    std::function<void(const Operands&, void* workspace)> run;
  };
  /// Chooses between cuDNN's engines and `separate`, which is the first proposal
  /// (src/runtime/algorithms.h). Nothing if `separate` is chosen or cuDNN has no engine.
  static std::optional<GeluProduct> choose(const Device& device, const GeluProblem& problem,
                                           const Separate& separate);

  int64_t workspace_bytes() const { return plan_.workspace_bytes(); }
  /// Asynchronous on the device's stream. Operands must be aligned to 16 bytes.
  void run(const Operands& operands, void* workspace) const;

 private:
  GeluProduct(const GeluProblem& problem, GeluGraph graph, DnnPlan plan)
      : problem_(problem), graph_(std::move(graph)), plan_(std::move(plan)) {}
  /// Nothing if cuDNN does not accept the engine, or it may not be used.
  static std::optional<GeluProduct> restore(const Device& device, const GeluProblem& problem,
                                            const EngineChoice& choice);
  static std::vector<GeluProduct> propose(const Device& device, const GeluProblem& problem);
  static std::optional<TimedChoice> time(const Device& device, const GeluProblem& problem,
                                         const Separate& separate);
  /// Whether the engine runs on the device and gives NaN for operands of NaN. The engine is run
  /// once per device.
  bool passes_trial(const Device& device) const;
  bool try_out(const Device& device) const;

  GeluProblem problem_;
  GeluGraph graph_;  // before plan_, which refers to it
  DnnPlan plan_;
};

}  // namespace trainyard::cuda
