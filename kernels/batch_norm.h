// kernels/batch_norm.h: batch normalization of each channel over its M = N*H*W values.
//
//   mean[c]    = (1/M) sum x,   var[c] = (1/M) sum (x - mean)^2      (biased)
//   inv_std[c] = 1 / sqrt(var + epsilon)
//   y          = (x - mean) * inv_std * scale + b
//   running_mean = momentum * running_mean + (1 - momentum) * mean
//   running_var  = momentum * running_var  + (1 - momentum) * var * M / (M - 1)    (unbiased)
// `momentum` is the share of the running value that is kept, as in ONNX; PyTorch's momentum is 1
// minus this. ONNX's reference implementation averages the biased variance; this one follows
// PyTorch, with which results are compared.
//
//   xhat = (x - mean) * inv_std
//   db = sum dy,   dscale = sum dy * xhat
//   dx = scale * inv_std * (dy - db/M - xhat * dscale/M)
//
// With `relu`, max(0, .) follows in the same pass, and a residual may be added before it:
//   y = max(0, (x - mean) * inv_std * scale + b + residual)
// The gradient then first computes g = dy where y > 0, else 0, and uses g in place of dy. The sign
// of y is read from y; without a residual it is instead recomputed from x, which saves reading y.
//
// Source: Ioffe, Szegedy, "Batch Normalization" (2015), algorithm 1 and section 3.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/image.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct BatchNormDims {
  ImageDims x;  // [N, C, H, W]; a rank-2 tensor has H = W = 1
  double epsilon = 1e-5;
  double momentum = 0.9;  // share of the running value that is kept
  int64_t values_per_channel() const { return x.N * x.H * x.W; }
};

/// All images have the same strides.
template <typename T>
struct BatchNormTrainingOperands {
  InOf<T> x;                  // [N, C, H, W]
  const NumberOf<T>* scale;   // [C]
  const NumberOf<T>* b;       // [C]
  NumberOf<T>* running_mean;  // [C], updated
  NumberOf<T>* running_var;   // [C], updated
  InOf<T> residual = {};      // [N, C, H, W], optional; only with relu
  bool relu = false;
  OutOf<T> y;            // [N, C, H, W]
  NumberOf<T>* mean;     // [C]
  NumberOf<T>* inv_std;  // [C]
};

template <typename T>
struct BatchNormInferenceOperands {
  InOf<T> x;                        // [N, C, H, W]
  const NumberOf<T>* scale;         // [C]
  const NumberOf<T>* b;             // [C]
  const NumberOf<T>* running_mean;  // [C]
  const NumberOf<T>* running_var;   // [C]
  InOf<T> residual = {};            // [N, C, H, W], optional; only with relu
  bool relu = false;
  OutOf<T> y;  // [N, C, H, W]
};

/// Recomputes the y of training from the saved statistics, with the same `relu` and `residual`.
template <typename T>
struct BatchNormReplayOperands {
  InOf<T> x;                   // [N, C, H, W]
  const NumberOf<T>* scale;    // [C]
  const NumberOf<T>* b;        // [C]
  const NumberOf<T>* mean;     // [C]
  const NumberOf<T>* inv_std;  // [C]
  InOf<T> residual = {};       // [N, C, H, W], optional
  bool relu = false;
  OutOf<T> y;  // [N, C, H, W]
};

/// With relu exactly one of b and y is given, otherwise neither.
template <typename T>
struct BatchNormGradOperands {
  InOf<T> x, dy;               // [N, C, H, W]
  const NumberOf<T>* scale;    // [C]
  const NumberOf<T>* mean;     // [C]
  const NumberOf<T>* inv_std;  // [C]
  bool relu = false;
  const NumberOf<T>* b = nullptr;  // [C]
  InOf<T> y = {};                  // [N, C, H, W]
  OutOf<T> dx = {};                // [N, C, H, W], optional
  NumberOf<T>* dscale = nullptr;   // [C], optional
  NumberOf<T>* db = nullptr;       // [C], optional
  OutOf<T> g = {};                 // [N, C, H, W], optional; only with relu
};

template <typename T>
void check(const BatchNormDims& d, const BatchNormTrainingOperands<T>& o) {
  Contract("batch_norm_training")
      .size("values", d.x.elements())
      .given("x", o.x)
      .given("scale", o.scale)
      .given("b", o.b)
      .given("running_mean", o.running_mean)
      .given("running_var", o.running_var)
      .holds(o.relu || !o.residual, "residual", "requires relu")
      .given("y", o.y)
      .given("mean", o.mean)
      .given("inv_std", o.inv_std);
}
template <typename T>
void check(const BatchNormDims& d, const BatchNormInferenceOperands<T>& o) {
  Contract("batch_norm_inference")
      .size("values", d.x.elements())
      .given("x", o.x)
      .given("scale", o.scale)
      .given("b", o.b)
      .given("running_mean", o.running_mean)
      .given("running_var", o.running_var)
      .holds(o.relu || !o.residual, "residual", "requires relu")
      .given("y", o.y);
}
template <typename T>
void check(const BatchNormDims& d, const BatchNormReplayOperands<T>& o) {
  Contract("batch_norm_replay")
      .size("values", d.x.elements())
      .given("x", o.x)
      .given("scale", o.scale)
      .given("b", o.b)
      .given("mean", o.mean)
      .given("inv_std", o.inv_std)
      .given("y", o.y);
}
template <typename T>
void check(const BatchNormDims& d, const BatchNormGradOperands<T>& o) {
  const bool has_y = static_cast<bool>(o.y), has_g = static_cast<bool>(o.g);
  Contract("batch_norm_backward")
      .size("values", d.x.elements())
      .given("x", o.x)
      .given("dy", o.dy)
      .given("scale", o.scale)
      .given("mean", o.mean)
      .given("inv_std", o.inv_std)
      .holds(o.relu ? (o.b != nullptr) != has_y : o.b == nullptr && !has_y, "b",
             "or y must be given with relu, and only one of them")
      .holds(o.relu || !has_g, "g", "requires relu");
}

/// Writes    all of each output that is given (assigned); running_* are read and updated.
/// Aliasing  y may be x in inference and replay; dx may be dy. With relu, either dx or g may be dy,
///           and either may be y.
/// Numerics  two passes (mean, then squared deviations), so no cancellation for large means.
/// Errors    none of its own: the op has checked M >= 2 for training.
namespace reference {
template <typename T>
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormTrainingOperands<T>& o, Run<T> run = {});
template <typename T>
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s,
                          const BatchNormInferenceOperands<T>& o, Run<T> run = {});
template <typename T>
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s,
                       const BatchNormReplayOperands<T>& o, Run<T> run = {});
/// With relu, and if neither dx nor g is requested, the workspace must have room for as many values
/// as x.
template <typename T>
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormGradOperands<T>& o, Run<T> run = {});
}  // namespace reference

/// Computes the same as namespace reference, but sums run over fixed blocks of rows, and the block
/// sums are added in double in their order: results are bit-identical for any team size. Fused relu
/// and residual give the same bits as separate steps.
namespace cpu {
int64_t batch_norm_workspace_bytes(const BatchNormDims& d, const ImageStrides& s);
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormTrainingOperands<float>& o, Run run);
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s,
                          const BatchNormInferenceOperands<float>& o, Run run);
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s,
                       const BatchNormReplayOperands<float>& o, Run run);
/// `mask_bytes` is the workspace per value of x: sizeof(float) with relu if neither dx nor g is
/// requested, else 0.
int64_t batch_norm_backward_workspace_bytes(const BatchNormDims& d, const ImageStrides& s,
                                            int64_t mask_bytes);
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormGradOperands<float>& o, Run run);
}  // namespace cpu

/// Computes the same as namespace reference, but x is read only twice. Its statistics are combined
/// from short pieces, each summed relative to the piece's first value, so that large means cost no
/// precision. y is computed as a x + c with a = inv_std scale and c = b - mean a, whose rounding
/// error adds at most 2^-24 |mean a|; dx is computed from g and x in the same way
/// (docs/numerics.md).
namespace cuda {
int64_t batch_norm_workspace_bytes(const BatchNormDims& d, const ImageStrides& s);
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormTrainingOperands<Views>& o, Run run);
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s,
                          const BatchNormInferenceOperands<Views>& o, Run run);
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s,
                       const BatchNormReplayOperands<Views>& o, Run run);
/// `skip` [N, C, H, W] is optional and requires relu. It is added to dy first; the sum is rounded
/// to the format of dx and g. With `skip` at least one of dx and g must be requested, and either
/// may alias dy or skip, but not y.
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormGradOperands<Views>& o, Run run, In skip = {});
}  // namespace cuda

}  // namespace trainyard::kernels
