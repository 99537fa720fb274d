// kernels/cpu/matmul.h: a prepared, single-threaded matrix product based on oneDNN, from which
// fully connected layers and their gradients are built. gemm.cc runs one product per slice and
// thread.
#pragma once

#include <cstdint>

#include "kernels/cpu/onednn.h"

namespace trainyard::kernels::cpu {

/// The strides of a matrix: element (i, j) is at offset i * row + j * column. A transposed
/// row-major matrix has row = 1.
struct MatrixStrides {
  int64_t row, column;
};

/// c [M, N] = a [M, K] * b [K, N] (+ bias [N]) (+ c)
struct MatmulDims {
  int64_t M, N, K;
  MatrixStrides a, b, c;
  bool bias = false;
  bool accumulate = false;  // c is added to instead of assigned
  /// Whether equal rows of a must give bit-identical rows of c; requires M >= 64 and no accumulate.
  bool rows_alike = false;
  // a and b, and c, are stored in bfloat16; only where multiplies_bf16() (kernels/gemm.h) is true.
  // Sums are float.
  bool bf16 = false, c_bf16 = false;
};

class Matmul {
 public:
  Matmul() = default;
  explicit Matmul(const MatmulDims& d);
  explicit operator bool() const { return static_cast<bool>(primitive_); }
  int64_t workspace_bytes() const { return workspace_.size_bytes(); }
  /// `bias` is nullptr unless MatmulDims::bias.
  void run(const void* a, const void* b, const float* bias, void* c, void* workspace);

 private:
  PreparedPrimitive primitive_;  // computes block_rows_ rows
  int64_t rows_ = 0, block_rows_ = 0;
  int64_t a_row_bytes_ = 0, c_row_bytes_ = 0;
  WorkspaceLayout workspace_;
};

}  // namespace trainyard::kernels::cpu
