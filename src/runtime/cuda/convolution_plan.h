// src/runtime/cuda/convolution_plan.h: a convolution or one of its gradients in cuDNN's graph API,
// with operands and result in formats for which an engine exists.
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
#include "src/runtime/cuda/offers.h"

namespace trainyard::cuda {

enum class ConvolutionPass : uint8_t {
  kForward,  // y of x and w
  kData,     // dx of dy and w
  kWeights,  // dw of x and dy
};

/// The problem that an engine solves. Both images are channels-last or both row-major; filters have
/// the corresponding order, [K, R, S, C/G] or [K, C/G, R, S].
struct ConvolutionProblem {
  ConvolutionPass pass = ConvolutionPass::kForward;
  kernels::ConvDims dims;
  bool channels_last = true;
  kernels::cuda::Format operands = kernels::cuda::Format::kF32,
                        result = kernels::cuda::Format::kF32;
  bool bias = false;  // forward only: in the format of the operands, added before y is rounded
  bool relu = false;  // max(y, 0) before rounding; only with a bias, and keeps NaN
  bool tf32 = false;  // F32 operands may be rounded to TF32
};

/// Limit of the workspace of an engine, on a device with `memory_bytes` of memory: that of every
/// convolution (convolution_workspace_least() of budgets.h), or as much as the operands and 32 MiB
/// if that is more, because F32 engines convert channels-last images to row-major and pad few
/// channels.
int64_t workspace_max(const ConvolutionProblem& problem, int64_t memory_bytes);

/// Returns a key with everything on which the choice of an engine depends. `any_result`: the choice
/// includes the format of the result.
std::string key_of(const ConvolutionProblem& problem, int64_t workspace, bool any_result);

/// Notes what cuDNN offers for a convolution with a bias (offers.h).
void note_offer(const Device& device, const ConvolutionProblem& problem, Offer offer);

/// Returns the dimensions of filters as images, and the strides of images.
kernels::ImageDims filter_dims(const kernels::ConvDims& d);
kernels::ImageStrides strides_of(const kernels::ImageDims& d, bool channels_last);

/// The graph of a problem. It needs no device unless `handle` is given.
class ConvolutionGraph {
 public:
  /// Names of the tensors in the graph.
  enum Name : int64_t { kImage = 1, kFilter, kOutput, kBias, kProduct, kSum };

  ConvolutionGraph(const ConvolutionProblem& problem, cudnnHandle_t handle);
  cudnnBackendDescriptor_t graph() const { return graph_.get(); }
  /// Returns the tensors of x, w and y, or of their gradients.
  cudnnBackendDescriptor_t image() const { return image_.get(); }
  cudnnBackendDescriptor_t filter() const { return filter_.get(); }
  cudnnBackendDescriptor_t output() const { return output_.get(); }

 private:
  /// An elementwise operation and its mode.
  struct Pointwise {
    BackendDescriptor mode, operation;
  };
  /// Returns an operation in F32, with `b` if it is not nullptr.
  static Pointwise make_pointwise(cudnnPointwiseMode_t mode, const BackendDescriptor& x,
                                  const BackendDescriptor& b, const BackendDescriptor& y);

  BackendDescriptor image_, filter_, output_, bias_, product_, sum_, convolution_, operation_;
  Pointwise addition_, relu_;
  BackendDescriptor graph_;
};

/// Returns the engines that may be used, best first as estimated by the library; empty if cuDNN
/// does not support the problem.
std::vector<EngineChoice> convolution_engines(const Device& device,
                                              const ConvolutionProblem& problem, Engines which);

/// A cuDNN graph with its execution plan.
class ConvolutionPlan {
 public:
  /// Nothing if cuDNN does not accept the choice, or the engine may not be used.
  static std::optional<ConvolutionPlan> restore(const Device& device,
                                                const ConvolutionProblem& problem,
                                                const EngineChoice& choice);
  int64_t workspace_bytes() const { return plan_.workspace_bytes(); }
  const EngineChoice& choice() const { return plan_.choice(); }
  /// Asynchronous on the device's stream. `bias` is used only if the problem has one.
  void run(const void* image, const void* filter, const void* output, const void* bias,
           void* workspace) const;
  /// Whether the engine runs on the device and, with ReLU, gives NaN for a bias of NaN. cuDNN has
  /// an attribute for the latter, but does not document which engines honour it. The engine is run
  /// once per device.
  bool passes_trial(const Device& device) const;

 private:
  /// Runs the engine with a bias of NaN, if it has one; whether the results are NaN if it has a
  /// ReLU. Throws std::bad_alloc.
  bool try_out(const Device& device) const;

  ConvolutionPlan(const ConvolutionProblem& problem, ConvolutionGraph graph, DnnPlan plan)
      : problem_(problem), graph_(std::move(graph)), plan_(std::move(plan)) {}

  ConvolutionProblem problem_;
  ConvolutionGraph graph_;  // before plan_, which refers to it
  DnnPlan plan_;
};

}  // namespace trainyard::cuda
