// src/runtime/cuda/convolution.h: a convolution, or a gradient of one, of tensors as the graph has
// them, prepared once: by an engine of cuDNN, by a kernel of our own where it is small, or as a
// product where it is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/conv.h"
#include "kernels/cuda/view.h"
#include "src/runtime/cuda/convolution_plan.h"
#include "src/runtime/cuda/device.h"
#include "src/runtime/cuda/product.h"

namespace trainyard::cuda {

/// A convolution of tensors as the graph has them: filters row-major, each tensor in a format of
/// its own, pads as the op says. There are several ways to it, of which the fastest is recorded
/// (src/runtime/algorithms.h): where no engine takes the tensors as they are, they are brought into
/// another form in the workspace.
class Convolution {
 public:
  struct Storage {
    kernels::cuda::Format a, b, result;
    bool tf32;  // F32 operands may be rounded to it
  };
  /// What a forward convolution's result goes through.
  enum class Epilogue : uint8_t { kNone, kBias, kBiasRelu };
  /// Operands a and b: x and w (forward), dy and w (data), x and dy (weights). `name` for the error
  /// where there is no way.
  Convolution(const Device& device, const std::string& name, ConvolutionPass pass,
              const kernels::ConvDims& dims, bool channels_last, Epilogue epilogue,
              Storage storage);
  int64_t workspace_bytes() const { return taken_.workspace_bytes; }
  /// The way and its engine, as they are recorded.
  std::string choice() const { return words_of(taken_); }
  /// Whether run_gradients() may be called: of kWeights, by a kernel that sums dy as well.
  bool gives_bias_gradient() const {
    return pass_ == ConvolutionPass::kWeights && taken_.way.by == By::kDirect;
  }
  void run_gradients(kernels::cuda::In x, kernels::cuda::In dy, kernels::cuda::Out dw, float* db,
                     void* workspace) const;
  /// `bias` [K] is read by a forward convolution that was prepared with one.
  void run(kernels::cuda::In a, kernels::cuda::In b, const float* bias, kernels::cuda::Out result,
           void* workspace) const {
    run(taken_, a, b, bias, result, workspace);
  }

 private:
  enum class By : uint8_t { kEngine, kProduct, kDirect };  // kDirect: kernels/cuda/direct_conv.h
  /// What computes it, and how the tensors are brought to an engine.
  struct Way {
    By by = By::kEngine;
    bool fused = false, result_as_operands = false, padded = false;  // fused: the epilogue too
    std::string words;  // in front of the engine's, where a choice is among several results
  };
  /// An operand or the result in the form of the way: where it is in the workspace, or -1 where it
  /// is used as it is.
  struct Form {
    int64_t at = -1;
    kernels::cuda::Format format = kernels::cuda::Format::kF32;
  };
  /// A way with its engine, and where its pieces of the workspace are.
  struct Prepared {
    Way way;
    kernels::ConvDims inner;              // of the way: the image may have pads in it
    Form a, b, result, added;             // added: the bias
    std::optional<ConvolutionPlan> plan;  // of an engine
    int64_t plan_at = 0, workspace_bytes = 0;
  };
  /// A choice is made among the ways of one group; the next group is for where that has none.
  using Group = std::vector<Way>;

  void prepare_product();
  bool is_direct() const;
  std::vector<Group> groups(bool padded) const;
  ConvolutionProblem problem_of(const Way& way) const;
  bool choose(const Group& group, Engines which);
  std::optional<Prepared> restore(const Group& group, std::string_view words) const;
  /// What is timed, best first as it is proposed; or the first alone.
  std::vector<Prepared> propose(const Group& group, Engines which, bool first_alone) const;
  std::optional<TimedChoice> time(const std::vector<Prepared>& candidates) const;
  Prepared lay_out(const Way& way, std::optional<ConvolutionPlan> plan) const;
  static std::string words_of(const Prepared& prepared);
  [[noreturn]] void refuse(const std::string& name) const;

  void run(const Prepared& by, kernels::cuda::In a, kernels::cuda::In b, const float* bias,
           kernels::cuda::Out result, void* workspace) const;
  void run_direct(kernels::cuda::In a, kernels::cuda::In b, const float* bias,
                  kernels::cuda::Out result, void* workspace) const;
  void compute(const Prepared& by, const void* a, const void* b, const void* added, void* result,
               void* workspace) const;
  void copy_image(const Prepared& by, const kernels::ImageDims& from, kernels::cuda::In x,
                  const kernels::ImageDims& to, kernels::cuda::Out y) const;
  void copy_filter(bool to_plan, kernels::cuda::In x, kernels::cuda::Out y) const;

  const Device& device_;
  ConvolutionPass pass_;
  kernels::ConvDims dims_;  // of the op
  bool channels_last_;
  Epilogue epilogue_;
  Storage storage_;
  kernels::cuda::Format operands_;  // what both are brought to
  std::optional<Matmul> product_;   // where it is one
  Prepared taken_;
};

/// y += bias, by channel.
void add_image_bias(const Device& device, const kernels::ImageDims& d,
                    const kernels::ImageStrides& s, const float* bias, kernels::cuda::Out y);

}  // namespace trainyard::cuda
