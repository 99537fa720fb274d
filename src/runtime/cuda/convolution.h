// src/runtime/cuda/convolution.h: one convolution, or a gradient of one, through cuDNN's graph API,
// prepared once.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "kernels/conv.h"
#include "kernels/cuda/view.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/dnn.h"

namespace trainyard::cuda {

/// Memory that an engine may use besides its operands. A fixed budget, so that the choice does not
/// depend on what happens to be free.
constexpr int64_t kConvolutionWorkspaceMax = int64_t{256} << 20;

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

/// A graph and its plan.
class ConvolutionPlan {
 public:
  /// Nothing if cuDNN has no engine for the problem that is allowed.
  static std::optional<ConvolutionPlan> find(const Device& device,
                                             const ConvolutionProblem& problem);
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

/// A convolution of tensors as the graph has them: filters row-major, each tensor in a format of
/// its own, pads as the op says. Where no engine takes that, operands are brought into another form
/// in the workspace.
class Convolution {
 public:
  struct Storage {
    kernels::cuda::Format a, b, result;
    bool tf32;  // F32 operands may be rounded to it
  };
  /// What a forward convolution's result goes through.
  enum class Epilogue : uint8_t { kNone, kBias, kBiasRelu };
  /// Operands a and b: x and w (forward), dy and w (data), x and dy (weights). `name` for the error
  /// where cuDNN has no engine.
  Convolution(const Device& device, const std::string& name, ConvolutionPass pass,
              const kernels::ConvDims& dims, bool channels_last, Epilogue epilogue,
              Storage storage);
  int64_t workspace_bytes() const { return workspace_bytes_; }
  const EngineChoice& choice() const { return plan_->choice(); }
  /// `bias` [K] is read by a forward convolution that was prepared with one.
  void run(kernels::cuda::In a, kernels::cuda::In b, const float* bias, kernels::cuda::Out result,
           void* workspace) const;

 private:
  /// An operand or the result in the form of the plan: where it is in the workspace, or -1 where it
  /// is used as it is.
  struct Form {
    int64_t at = -1;
    kernels::cuda::Format format = kernels::cuda::Format::kF32;
  };
  /// How the tensors are brought to the engine; the first that has a plan is taken.
  struct Way {
    bool fused, result_as_operands, padded;  // fused: the epilogue within the engine
  };
  bool prepare(const Way& way);
  Form form(int64_t elements, bool is_needed, kernels::cuda::Format format);
  void copy_image(const kernels::ImageDims& from, kernels::cuda::In x, const kernels::ImageDims& to,
                  kernels::cuda::Out y) const;
  void copy_filter(bool to_plan, kernels::cuda::In x, kernels::cuda::Out y) const;

  const Device& device_;
  ConvolutionPass pass_;
  kernels::ConvDims dims_;   // of the op
  kernels::ConvDims inner_;  // of the plan
  bool channels_last_;
  Epilogue epilogue_;
  Storage storage_;
  bool is_fused_ = false;
  Form a_, b_, result_, added_;  // added: the bias
  std::optional<ConvolutionPlan> plan_;
  int64_t plan_at_ = 0, workspace_bytes_ = 0;
};

/// y += bias, by channel.
void add_image_bias(const Device& device, const kernels::ImageDims& d,
                    const kernels::ImageStrides& s, const float* bias, kernels::cuda::Out y);

}  // namespace trainyard::cuda
