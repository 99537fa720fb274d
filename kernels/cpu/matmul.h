// kernels/cpu/matmul.h: a prepared matrix product on oneDNN, what Gemm and its gradients are made
// of. One thread; Gemm (gemm.cc) runs one per slice.
#pragma once

#include <cstdint>

#include "kernels/cpu/onednn.h"

namespace trainyard::kernels::cpu {

/// A matrix inside row-major memory: element (i, j) lies at i * row + j * column. A transposed one
/// has row 1.
struct MatrixStrides {
  int64_t row, column;
};

/// c [M, N] = a [M, K] * b [K, N] (+ bias [N]) (+ c)
struct MatmulDims {
  int64_t M, N, K;
  MatrixStrides a, b, c;
  bool bias = false;
  bool accumulate = false;  // c is added to, not assigned
  /// Equal rows of a give equal rows of c, to the bit, if M is at least 64. Not with accumulate.
  bool rows_alike = false;
};

class Matmul {
 public:
  Matmul() = default;
  explicit Matmul(const MatmulDims& d);
  explicit operator bool() const { return static_cast<bool>(primitive_); }
  int64_t workspace_bytes() const { return workspace_.size_bytes(); }
  /// `bias` is nullptr unless MatmulDims::bias.
  void run(const float* a, const float* b, const float* bias, float* c, void* workspace);

 private:
  PreparedPrimitive primitive_;  // of block_rows_ rows
  int64_t rows_ = 0, block_rows_ = 0, a_row_ = 0, c_row_ = 0;
  WorkspaceLayout workspace_;
};

}  // namespace trainyard::kernels::cpu
