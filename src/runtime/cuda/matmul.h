// src/runtime/cuda/matmul.h: one matrix product through cuBLASLt, prepared once.
#pragma once

#include <cublasLt.h>

#include <cstdint>

#include "src/base/handle.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// Memory that a product may use besides its operands. A fixed budget, so that the choice of an
/// algorithm does not depend on what happens to be free.
constexpr int64_t kMatmulWorkspaceMax = int64_t{32} << 20;

/// c[m, n] = op(a) op(b) (+ bias[n] on each row), all row-major F32. op(a) is [m, k]: a is stored
/// so, or as [k, m] with transpose_a. op(b) is [k, n]: b is stored so, or as [n, k] with
/// transpose_b.
struct MatmulDims {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
};

using MatmulDesc = Handle<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Handle<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;
using MatmulPreference = Handle<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>;

/// cuBLASLt's descriptors of a product, made without a device. cuBLASLt counts in columns, so a
/// row-major matrix is handed over as its transpose: c' = op(b)' op(a)', with b first.
struct MatmulDescription {
  explicit MatmulDescription(const MatmulDims& dims);
  MatmulDesc operation;
  MatrixLayout b, a, c;
};

class Matmul {
 public:
  /// Chooses the algorithm: the first that cuBLASLt proposes within the budget. No product may
  /// split its sum in an order that changes from run to run, and none computes in TF32.
  Matmul(const Device& device, const MatmulDims& dims);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Asynchronous on the device's stream. `bias` is read if dims.bias.
  void run(const float* a, const float* b, const float* bias, float* c, void* workspace) const;

 private:
  const Device& device_;
  MatmulDescription description_;
  bool bias_;
  cublasLtMatmulAlgo_t algorithm_{};
  int64_t workspace_bytes_ = 0;
};

}  // namespace trainyard::cuda
