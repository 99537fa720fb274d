// src/runtime/cuda/cublaslt_matmul.h: a matrix product with cuBLASLt, prepared once.
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

/// Operations fused into a product, some with a second tensor `other`. They are not available for
/// all products: check is_supported().
enum class Epilogue : uint8_t {
  kNone,
  kGelu,      // c = gelu(product + bias), the tanh approximation
  kGeluKept,  // like kGelu, and other[m, n], in c's format, is the input of gelu
  kGeluGrad,  // c = gelu'(other) * product; other[m, n] has c's format
  kSumsOfA,   // other[m] is the sum of each row of op(a), F32 like c: the gradient of a bias
  kRelu,      // c = relu(product + bias), keeping NaN
  kReluKept,  // like kRelu, and other[m] are rows of mask bits, padded to 128 bits
  kReluGrad,  // c = product where other's mask bit is set, else 0
};

/// c[m, n] = op(a) op(b) (+ bias[n] on each row) (+ c), all row-major. op(a) is [m, k]: a is stored
/// in this order, or as [k, m] with transpose_a. op(b) is [k, n]: b is stored in this order, or as
/// [n, k] with transpose_b. Sums are in F32 for all storage formats.
struct MatmulDims {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;  // adds bias[n]
  /// Number of products; the operands of product i begin i * stride elements after the first. With
  /// a stride of 0 all products share the operand.
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  /// The storage format of both a and b, and that of c.
  kernels::cuda::Format operands = kernels::cuda::Format::kF32, c = kernels::cuda::Format::kF32;
  bool accumulate = false;  // adds to the previous content of c
  // F32 operands are rounded to TF32, if the device has it; others are unaffected.
  bool tf32 = false;
  /// Elements between the starts of stored rows; 0: rows are dense.
  int64_t row_a = 0, row_b = 0, row_c = 0;
  /// Alignment in bytes of every address that is passed to run().
  uint32_t alignment = 16;
  Epilogue epilogue = Epilogue::kNone;
};

using MatmulDesc = Handle<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Handle<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;
using MatmulPreference = Handle<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>;

/// cuBLASLt's descriptors of a product, created without a device. cuBLASLt is column-major, so a
/// row-major matrix is passed as its transpose: c' = op(b)' op(a)', with b first.
struct MatmulDescription {
  explicit MatmulDescription(const MatmulDims& dims);
  MatmulDesc operation;
  MatrixLayout b, a, c;
};

class Matmul {
 public:
  /// Chooses the algorithm (src/runtime/algorithms.h) among those that cuBLASLt proposes within
  /// matmul_workspace_max() of budgets.h. Only algorithms whose sums have a fixed order are
  /// allowed.
  Matmul(const Device& device, const MatmulDims& dims);
  /// Whether the library has an algorithm for the product that runs, and with ReLU keeps NaN; this
  /// is tested by running it.
  static bool is_supported(const Device& device, const MatmulDims& dims);

  int64_t workspace_bytes() const { return bias_bytes_ + algorithm_.workspace_bytes; }
  /// Asynchronous on the device's stream. `bias` is used if dims.bias is set, in F32 or in c's
  /// format; `other` as described for the epilogue.
  void run(const void* a, const void* b, kernels::cuda::In bias, void* c, void* workspace,
           void* other = nullptr) const;

 private:
  struct Algorithm {
    cublasLtMatmulAlgo_t algorithm{};
    int64_t workspace_bytes = 0;
  };
  /// Returns the library's proposals, best first by its estimate; empty if there are none.
  static std::vector<Algorithm> propose(const Device& device, const MatmulDims& dims,
                                        const MatmulDescription& description);
  /// Returns the best proposal that passes its trial.
  static std::optional<Algorithm> first(const Device& device, const MatmulDims& dims,
                                        const MatmulDescription& description);
  /// Returns the algorithm of a recorded choice, if the library accepts it for this product and it
  /// is allowed.
  std::optional<Algorithm> restore(const std::string& choice) const;
  std::optional<TimedChoice> time() const;
  /// Whether the algorithm runs on the device and, with ReLU, gives NaN for NaN inputs: cuBLASLt
  /// documents its ReLU as max(x, 0), without mentioning NaN. An algorithm is run once per device.
  static bool passes_trial(const Device& device, const MatmulDims& dims,
                           const MatmulDescription& description, const Algorithm& algorithm);
  /// Runs the algorithm with NaN inputs; whether the results, and a mask, are those of NaN if it
  /// has a ReLU. Throws std::bad_alloc.
  static bool try_out(const Device& device, const MatmulDims& dims,
                      const MatmulDescription& description, const Algorithm& algorithm);
  /// Calls cuBLASLt. `added` is the bias in c's format.
  static void submit(const Device& device, const MatmulDims& dims,
                     const MatmulDescription& description, const Algorithm& algorithm,
                     const void* a, const void* b, const void* added, void* c, void* workspace,
                     void* other);

  const Device& device_;
  MatmulDims dims_;
  MatmulDescription description_;
  Algorithm algorithm_;
  int64_t bias_bytes_ =
      0;  // start of the workspace, for a bias converted to c's format, as cuBLASLt requires
};

/// Returns the row stride in elements of a matrix in a workspace. Rows are dense if this aligns
/// them to the 16 bytes that the library's fast 16-bit kernels need, else padded to a multiple of
/// 64 elements.
constexpr int64_t workspace_row(int64_t columns) {
  return columns % 8 == 0 ? columns : (columns + 63) / 64 * 64;
}

/// Returns the 16-bit format among `formats`, or F32 if there is none. They must not include two
/// different 16-bit formats.
kernels::cuda::Format narrowest(std::initializer_list<kernels::cuda::Format> formats);

/// A 16-bit copy of a row-major matrix in the workspace, for products; its row stride is
/// workspace_row().
class Narrowed {
 public:
  Narrowed(int64_t rows, int64_t columns, kernels::cuda::Format format)
      : rows_(rows), columns_(columns), format_(format) {}
  int64_t row() const { return rows_ == 1 ? columns_ : workspace_row(columns_); }
  int64_t bytes() const { return aligned(2 * rows_ * row()); }
  /// Asynchronous on the device's stream. `x` must have dense rows.
  kernels::cuda::In run(const Device& device, kernels::cuda::In x, void* to) const;

 private:
  int64_t rows_, columns_;
  kernels::cuda::Format format_;
};

/// A product of tensors in any storage formats. cuBLASLt multiplies operands of one format, so if
/// any tensor has 16 bits, F32 operands are first narrowed in the workspace.
class Product {
 public:
  /// `dims` without storage formats, which are given by `a`, `b` and `c`. They must not include two
  /// different 16-bit formats.
  Product(const Device& device, MatmulDims dims, kernels::cuda::Format a, kernels::cuda::Format b,
          kernels::cuda::Format c);
  static bool is_supported(const Device& device, const MatmulDims& dims, kernels::cuda::Format a,
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
