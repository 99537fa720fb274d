// src/runtime/cuda/convolution_plan.h: one convolution, or a gradient of one, as cuDNN's graph API
// takes it: both images and the result in forms that an engine has.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/conv.h"
#include "kernels/cuda/view.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/dnn.h"

namespace trainyard::cuda {

enum class ConvolutionPass : uint8_t {
  kForward,  // y of x and w
  kData,     // dx of dy and w
  kWeights,  // dw of x and dy
};

/// What an engine is asked for. Images are both channels-last or both row-major; filters lie as the
/// images do, [K, R, S, C/G] or [K, C/G, R, S].
struct ConvolutionProblem {
  ConvolutionPass pass = ConvolutionPass::kForward;
  kernels::ConvDims dims;
  bool channels_last = true;
  kernels::cuda::Format operands = kernels::cuda::Format::kF32,
                        result = kernels::cuda::Format::kF32;
  bool bias = false;  // forward: as the operands, added before y is rounded
  bool relu = false;  // and max(y, 0) before that; with a bias alone, and NaN stays
  bool tf32 = false;  // operands of F32 may be rounded to TF32
};

/// Memory that an engine may use besides its operands: a budget of the problem's own, so that the
/// choice does not depend on what happens to be free. Engines in F32 bring channels-last images
/// into row-major, and few channels are padded, so it may be as much as the operands take.
int64_t workspace_max(const ConvolutionProblem& problem);
/// What it was for every problem, when this program began to record choices.
constexpr int64_t kConvolutionWorkspaceLeast = int64_t{256} << 20;

/// Tells all that the choice of an engine depends on. `any_result`: of a choice among results of
/// several formats.
std::string key_of(const ConvolutionProblem& problem, int64_t workspace, bool any_result);

/// The filters as one image each, and how images lie.
kernels::ImageDims filter_dims(const kernels::ConvDims& d);
kernels::ImageStrides strides_of(const kernels::ImageDims& d, bool channels_last);

/// The graph of a problem. Made without a device, unless `handle` is given.
class ConvolutionGraph {
 public:
  /// Names of the tensors in the graph.
  enum Name : int64_t { kImage = 1, kFilter, kOutput, kBias, kProduct, kSum };

  ConvolutionGraph(const ConvolutionProblem& problem, cudnnHandle_t handle);
  cudnnBackendDescriptor_t graph() const { return graph_.get(); }
  /// The tensors of x, w and y, or their gradients.
  cudnnBackendDescriptor_t image() const { return image_.get(); }
  cudnnBackendDescriptor_t filter() const { return filter_.get(); }
  cudnnBackendDescriptor_t output() const { return output_.get(); }

 private:
  /// An operation on each element, and what says which.
  struct Pointwise {
    BackendDescriptor mode, operation;
  };
  /// In F32, with `b` if it is not nullptr.
  static Pointwise make_pointwise(cudnnPointwiseMode_t mode, const BackendDescriptor& x,
                                  const BackendDescriptor& b, const BackendDescriptor& y);

  BackendDescriptor image_, filter_, output_, bias_, product_, sum_, convolution_, operation_;
  Pointwise addition_, relu_;
  BackendDescriptor graph_;
};

/// What may be used, best first as the library proposes it; nothing for a problem that it refuses.
std::vector<EngineChoice> convolution_engines(const Device& device,
                                              const ConvolutionProblem& problem, Engines which);

/// A graph and its plan.
class ConvolutionPlan {
 public:
  /// Nothing if cuDNN does not take the choice, or it may not be used.
  static std::optional<ConvolutionPlan> restore(const Device& device,
                                                const ConvolutionProblem& problem,
                                                const EngineChoice& choice);
  int64_t workspace_bytes() const { return plan_.workspace_bytes(); }
  const EngineChoice& choice() const { return plan_.choice(); }
  /// Asynchronous on the device's stream. `bias` is read if the problem has one.
  void run(const void* image, const void* filter, const void* output, const void* bias,
           void* workspace) const;
  /// Whether NaN comes out where the sums are NaN: asks the engine on the device, with a bias of
  /// NaN. cuDNN has an attribute for it, but does not say which engines heed it.
  bool keeps_nan(const Device& device) const;

 private:
  ConvolutionPlan(const ConvolutionProblem& problem, ConvolutionGraph graph, DnnPlan plan)
      : problem_(problem), graph_(std::move(graph)), plan_(std::move(plan)) {}

  ConvolutionProblem problem_;
  ConvolutionGraph graph_;  // before the plan, which refers to it
  DnnPlan plan_;
};

}  // namespace trainyard::cuda
