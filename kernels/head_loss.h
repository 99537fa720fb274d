// kernels/head_loss.h: a model's last layer that is not trained, the classification loss of its
// scores, and the gradient of the layer's input.
//
//   z = x w' + b,  loss = softmax cross-entropy of z (softmax_xent.h),  dx = dz w
//
// Only rows that count are computed: those whose label is not the ignored one. Their scores exist
// for some rows at a time.
//
/// Shapes    x, dx [N, F]; w [K, F]; b [K] or null; label [N] with values in [0, K), or the ignored
///           label; loss, dloss [1].
/// Writes    loss, and all of dx unless it is null: 0 in rows that do not count.
/// Aliasing  none.
/// Numerics  scores and their gradients are float; rows are summed in double, in order. With x and
///           w in bfloat16 on a CPU that multiplies such numbers, the gradients of the scores are
///           rounded to bfloat16, as a product in that precision reads them.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/gemm.h"
#include "kernels/softmax_xent.h"

namespace trainyard::kernels::cpu {

/// Prepared once (oneDNN); results are bit-identical for teams of the same size. Not thread-safe.
class HeadLoss {
 public:
  /// How the tensors are stored.
  struct Form {
    Stored x = Stored::kF32, w = Stored::kF32, dx = Stored::kF32;
    bool bias = false;
  };
  struct Operands {
    const void *x, *w;
    const float* b;
    const int32_t* label;
    const float* dloss;
    float* loss;
    void* dx;
  };
  HeadLoss(const SoftmaxXentParams& p, int64_t features, Form form, Team& team);
  ~HeadLoss();
  int64_t workspace_bytes() const;
  void run(const Operands& o, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::kernels::cpu
