// kernels/cuda/channels_last_norm.h: batch normalization where the channels of a pixel lie side by
// side and come in eights: what a convolutional network on a GPU is made of. channel_norm.cu has
// the contract's functions, and every other layout, channel count and mixture of formats.
#pragma once

#include <cmath>
#include <initializer_list>

#include "kernels/batch_norm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"

namespace trainyard::kernels::cuda {

struct Moments {
  float count, mean, squares;  // squares: of the deviations from the mean
};

/// What becomes of a channel's moments.
struct BatchStatistics {
  float epsilon, momentum;
  float *running_mean, *running_var, *mean, *inv_std;
  TRAINYARD_DEVICE void operator()(int64_t c, const Moments& m) const {
    mean[c] = m.mean;
    inv_std[c] = 1.0f / std::sqrt(m.squares / m.count + epsilon);
    running_mean[c] = momentum * running_mean[c] + (1.0f - momentum) * m.mean;
    running_var[c] = momentum * running_var[c] + (1.0f - momentum) * (m.squares / (m.count - 1.0f));
  }
};

/// Sums of g and of g xhat, or their means.
struct Two {
  float gradients, products;
};

/// What becomes of a channel's sums: gradients, and for dx their means times scale.
struct BatchSums {
  const float* scale;
  float share;  // 1 / M
  Two* means;
  float *dscale, *db;
  TRAINYARD_DEVICE void operator()(int64_t c, const Two& t) const {
    if (dscale != nullptr) dscale[c] = t.products;
    if (db != nullptr) db[c] = t.gradients;
    const float by = scale[c] * share;
    means[c] = {by * t.gradients, by * t.products};
  }
};

/// What a channel's values are multiplied by, and what is added then. One formula wherever y is
/// made, so that backward finds the sign that forward saw.
struct Fold {
  float a, c;
  TRAINYARD_DEVICE Fold(float mean, float inv_std, float scale, float b)
      : a(inv_std * scale), c(b - mean * a) {}
  TRAINYARD_DEVICE float operator()(float x) const { return a * x + c; }
};

/// Of channels. `b` is needed by what makes y.
struct BatchVectors {
  const float *mean, *inv_std, *scale, *b;
};

/// Whether the functions below may be used: on tensors that are stored alike.
bool takes_channel_eights(const BatchNormDims& d, const ImageStrides& s,
                          std::initializer_list<In> tensors,
                          std::initializer_list<const float*> vectors);

/// Of either function that takes a workspace.
int64_t channel_eights_workspace_bytes(const BatchNormDims& d);
void channel_eights_statistics(const BatchNormDims& d, In x, const BatchStatistics& statistics,
                               Run run);
/// y may be x.
void channel_eights_normalize(const BatchNormDims& d, const BatchNormReplayOperands<Views>& o,
                              Run run);
/// As batch_norm_backward. `sums.means` is memory for C.
void channel_eights_backward(const BatchNormDims& d, const BatchNormGradOperands<Views>& o, In skip,
                             const BatchSums& sums, Run run);

}  // namespace trainyard::kernels::cuda
