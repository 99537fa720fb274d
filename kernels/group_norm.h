// kernels/group_norm.h: normalization of each group of channels of each sample, over the group's M
// = C/G * H * W values. With as many groups as channels it is instance normalization.
//
//   mean[n,g]    = (1/M) sum x,  inv_std[n,g] = 1 / sqrt((1/M) sum (x - mean)^2 + epsilon)
//   xhat = (x - mean) * inv_std,   y = xhat * scale[c] + b[c]
//
//   a = dy * scale[c]
//   dx = inv_std * (a - (1/M) sum a - xhat * (1/M) sum a * xhat)     sums over the group
//   dscale[c] = sum over n, h, w of dy * xhat,   db[c] = sum over n, h, w of dy
//
// Sources: Wu, He, "Group Normalization" (2018); Ulyanov, Vedaldi, Lempitsky, "Instance
// Normalization" (2016).
//
/// Writes    all of each output that is given, assigned.
/// Aliasing  y may be x; dx may be dy.
/// Numerics  two passes (mean, then squared deviations), so no cancellation for large means.
/// Errors    none: the op has checked that G divides C and that M >= 2.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/image.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct GroupNormDims {
  ImageDims x;
  int64_t groups = 1;
  double epsilon = 1e-5;
  int64_t channels() const { return x.C / groups; }  // channels of one group
  int64_t values() const { return channels() * x.pixels(); }
};

/// x and y have the same strides, and so have their gradients.
template <typename T>
struct GroupNormOperands {
  InOf<T> x;                       // [N, C, H, W]
  const NumberOf<T>* scale;        // [C]
  const NumberOf<T>* b;            // [C]
  OutOf<T> y;                      // [N, C, H, W]
  NumberOf<T>* mean = nullptr;     // [N, groups], optional
  NumberOf<T>* inv_std = nullptr;  // [N, groups], optional
};

template <typename T>
struct GroupNormGradOperands {
  InOf<T> x;                      // [N, C, H, W]
  const NumberOf<T>* scale;       // [C]
  const NumberOf<T>* mean;        // [N, groups]
  const NumberOf<T>* inv_std;     // [N, groups]
  InOf<T> dy;                     // [N, C, H, W]
  OutOf<T> dx = {};               // [N, C, H, W], optional
  NumberOf<T>* dscale = nullptr;  // [C], optional
  NumberOf<T>* db = nullptr;      // [C], optional
};

template <typename T>
void check(const GroupNormDims& d, const GroupNormOperands<T>& o) {
  Contract("group_norm_forward")
      .size("values", d.x.elements())
      .size("groups", d.groups)
      .holds(d.x.C % d.groups == 0, "groups", "is not a divisor of the channels")
      .given("x", o.x)
      .given("scale", o.scale)
      .given("b", o.b)
      .given("y", o.y);
}
template <typename T>
void check(const GroupNormDims& d, const GroupNormGradOperands<T>& o) {
  Contract("group_norm_backward")
      .size("values", d.x.elements())
      .size("groups", d.groups)
      .holds(d.x.C % d.groups == 0, "groups", "is not a divisor of the channels")
      .given("x", o.x)
      .given("scale", o.scale)
      .given("mean", o.mean)
      .given("inv_std", o.inv_std)
      .given("dy", o.dy);
}

namespace reference {  // T is float or double
template <typename T>
void group_norm_forward(const GroupNormDims& d, const ImageStrides& s,
                        const GroupNormOperands<T>& o, Run<T> run = {});
template <typename T>
void group_norm_backward(const GroupNormDims& d, const ImageStrides& s,
                         const GroupNormGradOperands<T>& o, Run<T> run = {});
}  // namespace reference

/// Samples are split over the team, and the sums of each sample are added in double in order:
/// results are bit-identical for any team size.
namespace cpu {
int64_t group_norm_workspace_bytes(const GroupNormDims& d, const ImageStrides& s);
void group_norm_forward(const GroupNormDims& d, const ImageStrides& s,
                        const GroupNormOperands<float>& o, Run run);
void group_norm_backward(const GroupNormDims& d, const ImageStrides& s,
                         const GroupNormGradOperands<float>& o, Run run);
}  // namespace cpu

/// Computes the same as namespace reference, with statistics computed as in batch_norm.h.
namespace cuda {
int64_t group_norm_workspace_bytes(const GroupNormDims& d, const ImageStrides& s);
void group_norm_forward(const GroupNormDims& d, const ImageStrides& s,
                        const GroupNormOperands<Views>& o, Run run);
void group_norm_backward(const GroupNormDims& d, const ImageStrides& s,
                         const GroupNormGradOperands<Views>& o, Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
