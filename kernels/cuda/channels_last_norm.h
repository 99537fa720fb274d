// kernels/cuda/channels_last_norm.h: batch normalization for channels-last tensors whose number of
// channels is a multiple of eight, the usual case in a convolutional network on a GPU.
// channel_norm.cu has the contract's functions, and handles all other memory orders, channel counts
// and mixtures of formats.
#pragma once

#include <cmath>
#include <initializer_list>

#include "kernels/batch_norm.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stream.h"

namespace trainyard::kernels::cuda {

struct Moments {
  float count, mean, squares;  // squares: the sum of squared deviations from the mean
};

/// Computes and stores a channel's statistics from its moments.
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

/// The sums of g and of g xhat, or their means.
struct Two {
  float gradients, products;
};

/// Stores a channel's gradients from its sums, and for dx the means of the sums times scale.
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

/// The factor and the summand that turn a channel's x into y. All kernels use this formula, so that
/// backward computes the same sign of y as forward.
struct Fold {
  float a, c;
  TRAINYARD_DEVICE Fold(float mean, float inv_std, float scale, float b)
      : a(inv_std * scale), c(b - mean * a) {}
  TRAINYARD_DEVICE float operator()(float x) const { return a * x + c; }
};

/// Vectors of C elements. `b` is only needed where y is computed.
struct BatchVectors {
  const float *mean, *inv_std, *scale, *b;
};

/// Whether the functions below support these operands, which requires a common storage format.
bool supports_channel_eights(const BatchNormDims& d, const ImageStrides& s,
                             std::initializer_list<In> tensors,
                             std::initializer_list<const float*> vectors);

/// Returns the workspace for either function that needs one.
int64_t channel_eights_workspace_bytes(const BatchNormDims& d);
void channel_eights_statistics(const BatchNormDims& d, In x, const BatchStatistics& statistics,
                               Run run);
/// y may be x.
void channel_eights_normalize(const BatchNormDims& d, const BatchNormReplayOperands<Views>& o,
                              Run run);
/// Computes batch_norm_backward. `sums.means` points to memory for C elements.
void channel_eights_backward(const BatchNormDims& d, const BatchNormGradOperands<Views>& o, In skip,
                             const BatchSums& sums, Run run);

}  // namespace trainyard::kernels::cuda
