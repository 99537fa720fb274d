// kernels/cuda/class_target.h: computes the target distribution of a row from its label, the label
// smoothing and the class weights (kernels/softmax_xent.h), and sums values over the rows of a
// batch in one block. Used by the losses over all classes, sampled classes and split classes.
#pragma once

#include <cmath>

#include "kernels/cuda/row.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels::cuda {

constexpr int kSumThreads = 1024;

/// Sums over the block; every thread of the block gets the result.
TRAINYARD_DEVICE double block_sum_double(double value) {
  TRAINYARD_SHARED(double, of_warp, [kWarp]);
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  }
  __syncthreads();  // the previous call's values have been read
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  double total = 0;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) total += of_warp[w];
  return total;
}

/// Describes the distribution c that smoothing and weights make of a label.
struct ClassTarget {
  int64_t ignored;
  float kept;            // 1 - s
  float share;           // s / K
  float weight_sum;      // over all classes
  float entropy;         // sum c log c if it is subtracted from the loss, else 0
  const float* weights;  // or nullptr

  TRAINYARD_HD float weight(int64_t k) const { return weights == nullptr ? 1.0f : weights[k]; }
};

inline ClassTarget target_of(const SoftmaxXentParams& p, const float* weights) {
  const auto K = static_cast<double>(p.classes);
  double sum = p.weights.empty() ? K : 0;
  for (const double w : p.weights) sum += w;
  const double share = p.smoothing / K, label = 1 - p.smoothing + share;
  const auto part = [](double c) { return c == 0 ? 0 : c * std::log(c); };
  return {p.ignored,
          static_cast<float>(1 - p.smoothing),
          static_cast<float>(share),
          static_cast<float>(sum),
          static_cast<float>(p.divergence ? part(label) + (K - 1) * part(share) : 0),
          weights};
}

/// W, the sum of the weights of all rows that are not ignored; for one block.
TRAINYARD_DEVICE double total_weight(int64_t rows, const ClassTarget& t, const int32_t* labels) {
  double weight = 0;
  for (int64_t n = threadIdx.x; n < rows; n += blockDim.x) {
    if (label_counts(labels[n], t.ignored)) weight += static_cast<double>(t.weight(labels[n]));
  }
  return block_sum_double(weight);
}

/// Writes the weighted mean of the rows' losses; for one block.
TRAINYARD_DEVICE void write_mean(int64_t rows, const ClassTarget& t, const float* row_loss,
                                 const int32_t* labels, float* loss) {
  double sum = 0;
  for (int64_t n = threadIdx.x; n < rows; n += blockDim.x) sum += static_cast<double>(row_loss[n]);
  const double total = block_sum_double(sum), weight = total_weight(rows, t, labels);
  if (threadIdx.x == 0) *loss = weight == 0 ? 0.0f : static_cast<float>(total / weight);
}

/// weigh_labels writes W to *weight; mean_of_rows writes the mean of the rows' losses to *loss.
/// Each uses one block. Asynchronous on `stream`; cudaPeekAtLastError() reports a failed launch.
void weigh_labels(int64_t rows, const ClassTarget& t, const int32_t* labels, double* weight,
                  CUstream_st* stream);
void mean_of_rows(int64_t rows, const ClassTarget& t, const float* row_loss, const int32_t* labels,
                  float* loss, CUstream_st* stream);

}  // namespace trainyard::kernels::cuda
