// kernels/batch_norm.h: batch normalization over N, H, W for each channel, M = N*H*W values.
//
//   mean[c]    = (1/M) sum x,   var[c] = (1/M) sum (x - mean)^2      (biased)
//   inv_std[c] = 1 / sqrt(var + epsilon)
//   y          = (x - mean) * inv_std * scale + b
//   running_mean = momentum * running_mean + (1 - momentum) * mean
//   running_var  = momentum * running_var  + (1 - momentum) * var * M / (M - 1)    (unbiased)
// momentum is the share that is kept (ONNX); PyTorch's momentum is 1 minus it. ONNX's reference
// keeps the biased variance; we follow PyTorch, whose results ours are compared with.
//
//   xhat = (x - mean) * inv_std
//   db = sum dy,   dscale = sum dy * xhat
//   dx = scale * inv_std * (dy - db/M - xhat * dscale/M)
//
// Followed by max(0, .), and by the sum of a residual before it, in the same sweeps:
//   y = max(0, (x - mean) * inv_std * scale + b + residual)
// Its gradient first takes g = dy where y > 0, else 0, and goes on with g for dy. What y was is
// read from y, or, where there was no residual, found again from x: that saves reading y.
//
// Source: Ioffe, Szegedy, "Batch Normalization" (2015), algorithm 1 and section 3.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/image.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct BatchNormDims {
  ImageDims x;  // [N, C, H, W]; rank 2 is H = W = 1
  double epsilon = 1e-5;
  double momentum = 0.9;  // share of the running value that is kept
  int64_t values_per_channel() const { return x.N * x.H * x.W; }
};

/// Images lie alike in all operands.
template <typename T>
struct BatchNormTrainingOperands {
  InOf<T> x;                  // [N, C, H, W]
  const NumberOf<T>* scale;   // [C]
  const NumberOf<T>* b;       // [C]
  NumberOf<T>* running_mean;  // [C], updated
  NumberOf<T>* running_var;   // [C], updated
  InOf<T> residual = {};      // [N, C, H, W], optional; with relu alone
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
  InOf<T> residual = {};            // [N, C, H, W], optional; with relu alone
  bool relu = false;
  OutOf<T> y;  // [N, C, H, W]
};

/// Training's y once more, from the statistics that it saved; `relu` and `residual` as they were.
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

/// With relu exactly one of b and y is given, without it neither is.
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
  OutOf<T> g = {};                 // [N, C, H, W], optional; with relu alone
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
      .holds(o.relu || !o.residual, "residual", "is taken with relu alone")
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
      .holds(o.relu || !o.residual, "residual", "is taken with relu alone")
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
             "or y is given with relu, and one of them alone")
      .holds(o.relu || !has_g, "g", "is made with relu alone");
}

/// Writes    all of each output that is there (assigned); running_* are read and updated.
/// Aliasing  y may be x in inference and replay; dx may be dy. With relu one of dx and g may be dy,
///           and one may be y.
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
/// With relu the workspace holds as many values as x, if neither dx nor g is wanted.
template <typename T>
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormGradOperands<T>& o, Run<T> run = {});
}  // namespace reference

/// As above; sums go over fixed blocks of rows that are then added in double in their order, so the
/// thread count changes no bit. With relu the bits are those of the steps one after another.
namespace cpu {
int64_t batch_norm_workspace_bytes(const BatchNormDims& d, const ImageStrides& s);
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormTrainingOperands<float>& o, Run run);
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s,
                          const BatchNormInferenceOperands<float>& o, Run run);
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s,
                       const BatchNormReplayOperands<float>& o, Run run);
/// `mask_bytes` of each value: 0, or with relu, where neither dx nor g is wanted, those of a float.
int64_t batch_norm_backward_workspace_bytes(const BatchNormDims& d, const ImageStrides& s,
                                            int64_t mask_bytes);
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormGradOperands<float>& o, Run run);
}  // namespace cpu

/// As above. x is read twice: its statistics are joined from short pieces, each by sums about its
/// first value, which lose nothing to large means. y is a x + c with a = inv_std scale and
/// c = b - mean a, whose rounding adds 2^-24 |mean a| at most; dx is made of g and x in the same
/// way (docs/numerics.md).
namespace cuda {
int64_t batch_norm_workspace_bytes(const BatchNormDims& d, const ImageStrides& s);
void batch_norm_training(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormTrainingOperands<Views>& o, Run run);
void batch_norm_inference(const BatchNormDims& d, const ImageStrides& s,
                          const BatchNormInferenceOperands<Views>& o, Run run);
void batch_norm_replay(const BatchNormDims& d, const ImageStrides& s,
                       const BatchNormReplayOperands<Views>& o, Run run);
/// `skip` [N, C, H, W], which may be left out and needs relu, is added to dy first, and the sum is
/// rounded as dx and g are: one of these is wanted then, and either may be dy or skip, but not y.
void batch_norm_backward(const BatchNormDims& d, const ImageStrides& s,
                         const BatchNormGradOperands<Views>& o, Run run, In skip = {});
}  // namespace cuda

}  // namespace trainyard::kernels
