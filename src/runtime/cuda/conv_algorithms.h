// src/runtime/cuda/conv_algorithms.h: a convolution or one of its gradients on the graph's tensors,
// prepared once. It is computed by a cuDNN engine, by our own kernel for small problems, or as a
// matrix product.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/conv.h"
#include "kernels/cuda/view.h"
#include "src/runtime/cuda/convolution_plan.h"
#include "src/runtime/cuda/cublaslt_matmul.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// A convolution on the graph's tensors: filters are row-major, each tensor has its own format, and
/// padding is that of the op. Several ways may compute it; the fastest one is recorded
/// (src/runtime/algorithms.h). If no engine accepts the tensors unchanged, they are converted in
/// the workspace.
class Convolution {
 public:
  struct Storage {
    kernels::cuda::Format a, b, result;
    bool tf32;  // F32 operands may be rounded to TF32
  };
  /// Operations after a forward convolution.
  enum class Epilogue : uint8_t { kNone, kBias, kBiasRelu };
  /// Operands a and b are x and w (forward), dy and w (data), or x and dy (weights). `name` is used
  /// in the error if no way exists.
  Convolution(const Device& device, const std::string& name, ConvolutionPass pass,
              const kernels::ConvDims& dims, bool channels_last, Epilogue epilogue,
              Storage storage);
  int64_t workspace_bytes() const { return chosen_.workspace_bytes; }
  /// Returns the chosen way and its engine, in the recorded form.
  std::string choice() const { return words_of(chosen_); }
  /// Whether run_gradients() may be called: for kWeights, if the kernel also sums dy.
  bool gives_bias_gradient() const {
    return pass_ == ConvolutionPass::kWeights && chosen_.way.by == Method::kDirect;
  }
  void run_gradients(kernels::cuda::In x, kernels::cuda::In dy, kernels::cuda::Out dw, float* db,
                     void* workspace) const;
  /// `bias` [K] is read by a forward convolution that was prepared with an epilogue.
  void run(kernels::cuda::In a, kernels::cuda::In b, const float* bias, kernels::cuda::Out result,
           void* workspace) const {
    run(chosen_, a, b, bias, result, workspace);
  }

 private:
  enum class Method : uint8_t { kEngine, kProduct, kDirect };  // kDirect: our own kernel
  /// The means of computation, and the conversions of the tensors for an engine.
  struct Way {
    Method by = Method::kEngine;
    bool fused = false, result_as_operands = false, padded = false;  // fused: includes the epilogue
    std::string
        words;  // prefix of the engine's text, if a choice includes the format of the result
  };
  /// The converted form of an operand or result: its offset in the workspace, or -1 if the tensor
  /// is used unchanged.
  struct Form {
    int64_t at = -1;
    kernels::cuda::Format format = kernels::cuda::Format::kF32;
  };
  /// A way with its engine and the offsets of its parts of the workspace.
  struct Prepared {
    Way way;
    kernels::ConvDims inner;   // dimensions for the engine: the image may include padding
    Form a, b, result, added;  // added: the bias
    std::optional<ConvolutionPlan> plan;  // only for an engine
    int64_t plan_at = 0, workspace_bytes = 0;
  };
  /// The ways of one group compete in one choice; the next group is used only if a group has no way
  /// that works.
  using Group = std::vector<Way>;

  void prepare_product();
  bool is_direct() const;
  bool has_fast_patches() const;
  std::vector<Group> groups(bool padded) const;
  ConvolutionProblem problem_of(const Way& way) const;
  bool choose(const Group& group, Engines which);
  std::optional<Prepared> restore(const Group& group, std::string_view words) const;
  /// Returns the candidates for timing, best first as estimated by the library; or only the first.
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
  /// Whether the product needs the image as a matrix of patches.
  bool takes_patches(const Prepared& by) const;
  void copy_patches(bool to_matrix, kernels::cuda::In x, kernels::cuda::Out y) const;
  void copy_filter(bool to_plan, kernels::cuda::In x, kernels::cuda::Out y) const;

  const Device& device_;
  ConvolutionPass pass_;
  kernels::ConvDims dims_;  // those of the op
  bool channels_last_;
  Epilogue epilogue_;
  Storage storage_;
  kernels::cuda::Format operands_;  // the format to which both operands are converted
  std::optional<Matmul> product_;   // if the convolution is a matrix product
  bool product_adds_bias_ = false;
  Prepared chosen_;
};

/// Adds the bias to y, per channel.
void add_image_bias(const Device& device, const kernels::ImageDims& d,
                    const kernels::ImageStrides& s, const float* bias, kernels::cuda::Out y);

}  // namespace trainyard::cuda
