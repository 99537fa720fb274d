// src/runtime/cuda/product.h: one matrix product through cuBLASLt, prepared once.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/view.h"
#include "src/base/handle.h"
#include "src/runtime/algorithms.h"
#include "src/runtime/cuda/device.h"

namespace trainyard::cuda {

/// Memory that a product may use besides its operands. A fixed budget, so that the choice of an
/// algorithm does not depend on what happens to be free.
constexpr int64_t kMatmulWorkspaceMax = int64_t{32} << 20;

/// What a product does besides, with a second tensor `other`. Not every product has it: ask
/// is_offered().
enum class Epilogue : uint8_t {
  kNone,
  kGelu,      // c = gelu(product and bias), the tanh form
  kGeluKept,  // and other[m, n], stored as c, is what gelu was taken of
  kGeluGrad,  // c = gelu'(other) product; other[m, n], stored as c
  kSumsOfA,   // other[m] are the sums of op(a)'s rows, F32 as c: the gradient of a bias
  kRelu,      // c = relu(product and bias), and NaN stays
  kReluKept,  // and other[m] are rows of bits, 128 and their multiples, of what was let through
  kReluGrad,  // c = product where other's bit is set, else 0
};

/// c[m, n] = op(a) op(b) (+ bias[n] on each row) (+ c), all row-major. op(a) is [m, k]: a is stored
/// so, or as [k, m] with transpose_a. op(b) is [k, n]: b is stored so, or as [n, k] with
/// transpose_b. Sums are made in F32, whatever is stored.
struct MatmulDims {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;  // F32
  /// So many products; operands of product i begin i * stride elements further. A stride of 0: all
  /// products share the operand.
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  /// How a and b are stored, which must be alike, and c.
  kernels::cuda::Format operands = kernels::cuda::Format::kF32, c = kernels::cuda::Format::kF32;
  bool accumulate = false;  // onto what c holds
  bool tf32 = false;        // operands of F32 are rounded to TF32; others are as they are
  /// Elements from one stored row to the next; 0: as many as a row has.
  int64_t row_a = 0, row_b = 0, row_c = 0;
  /// What every address that is handed to run() is a multiple of, in bytes.
  uint32_t alignment = 16;
  Epilogue epilogue = Epilogue::kNone;
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
  /// Chooses the algorithm (src/runtime/algorithms.h) among those that cuBLASLt proposes within the
  /// budget. No product may split its sum in an order that changes from run to run.
  Matmul(const Device& device, const MatmulDims& dims);
  /// Whether the library has an algorithm for it; of ReLU, one that keeps NaN, for which it is run.
  static bool is_offered(const Device& device, const MatmulDims& dims);

  int64_t workspace_bytes() const { return bias_bytes_ + algorithm_.workspace_bytes; }
  /// Asynchronous on the device's stream. `bias` is read if dims.bias, in F32 or in c's type;
  /// `other` as the epilogue says.
  void run(const void* a, const void* b, kernels::cuda::In bias, void* c, void* workspace,
           void* other = nullptr) const;

 private:
  struct Algorithm {
    cublasLtMatmulAlgo_t algorithm{};
    int64_t workspace_bytes = 0;
  };
  /// Best first, as the library estimates; nothing where it has none. Of ReLU's epilogues only what
  /// keeps NaN.
  static std::vector<Algorithm> propose(const Device& device, const MatmulDims& dims,
                                        const MatmulDescription& description, int count_max);
  /// A choice's algorithm, if the library takes it for this product and we do.
  std::optional<Algorithm> restore(const std::string& choice) const;
  std::optional<TimedChoice> time() const;
  /// Whether NaN comes out where NaN goes in: asks the algorithm on the device. cuBLASLt documents
  /// its ReLU as max(x, 0), and says nothing of NaN.
  static bool keeps_nan(const Device& device, const MatmulDims& dims,
                        const MatmulDescription& description, const Algorithm& algorithm);
  /// The library's part. `added` has c's type.
  static void submit(const Device& device, const MatmulDims& dims,
                     const MatmulDescription& description, const Algorithm& algorithm,
                     const void* a, const void* b, const void* added, void* c, void* workspace,
                     void* other);

  const Device& device_;
  MatmulDims dims_;
  MatmulDescription description_;
  Algorithm algorithm_;
  int64_t bias_bytes_ = 0;  // of the workspace, in front: cuBLASLt adds a bias of c's type alone
};

/// Elements from one row to the next of a matrix that lies in a workspace: as many as a row has
/// where that keeps rows on the 16 bytes that the library's fast kernels of 16 bits ask for, else
/// up to a multiple of 64.
constexpr int64_t workspace_row(int64_t columns) {
  return columns % 8 == 0 ? columns : (columns + 63) / 64 * 64;
}

/// The one of 16 bits, F32 if there is none. No two of them are different ones of 16 bits.
kernels::cuda::Format narrowest(std::initializer_list<kernels::cuda::Format> formats);

/// A copy of a row-major matrix in 16 bits, for products: in workspace, its rows workspace_row()
/// apart.
class Narrowed {
 public:
  Narrowed(int64_t rows, int64_t columns, kernels::cuda::Format format)
      : rows_(rows), columns_(columns), format_(format) {}
  int64_t row() const { return rows_ == 1 ? columns_ : workspace_row(columns_); }
  int64_t bytes() const { return aligned(2 * rows_ * row()); }
  /// Asynchronous on the device's stream. `x` has dense rows.
  kernels::cuda::In run(const Device& device, kernels::cuda::In x, void* to) const;

 private:
  int64_t rows_, columns_;
  kernels::cuda::Format format_;
};

/// A product of tensors however each is stored: cuBLASLt multiplies operands of one format, so
/// where anything has 16 bits, an operand that has not is narrowed into the workspace first.
class Product {
 public:
  /// `dims` without how its matrices are stored, which the formats say. No two of them are
  /// different ones of 16 bits.
  Product(const Device& device, MatmulDims dims, kernels::cuda::Format a, kernels::cuda::Format b,
          kernels::cuda::Format c);
  static bool is_offered(const Device& device, const MatmulDims& dims, kernels::cuda::Format a,
                         kernels::cuda::Format b, kernels::cuda::Format c);
  int64_t workspace_bytes() const;
  void run(kernels::cuda::In a, kernels::cuda::In b, kernels::cuda::In bias, kernels::cuda::Out c,
           void* workspace, void* other = nullptr) const;

 private:
  const Device& device_;
  std::optional<Narrowed> a_, b_;
  Matmul product_;
};

}  // namespace trainyard::cuda
