// kernels/gemm.h: fully connected layer.
//
//   y  = x w^T + b        dx = dy w        dw = dy^T x        db[k] = sum_n dy[n,k]
//
/// Shapes    x, dx [N, F]; w, dw [K, F]; b, db [K] or null; y, dy [N, K]; all row-major.
/// Writes    all of each output that is not null, assigned; y, or dx, is added to if
/// GemmDims::adds. Aliasing  none. Numerics  sums run in T, in index order.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/contract.h"

namespace trainyard::kernels {

struct GemmDims {
  int64_t N, K, F;    // all >= 1
  bool adds = false;  // the product is added to y, or dx, instead of assigned
};

inline void check(const GemmDims& d) {
  Contract("gemm").size("N", d.N).size("K", d.K).size("F", d.F);
}
inline void check(const GemmDims& d, const void* x, const void* w, const void* y) {
  check(d);
  Contract("gemm_forward").given("x", x).given("w", w).given("y", y);
}
inline void check(const GemmDims& d, const void* x, const void* w, const void* dy, const void* dx,
                  const void* dw) {
  check(d);
  Contract("gemm_backward")
      .holds(dw == nullptr || x != nullptr, "x", "is missing")
      .holds(dx == nullptr || w != nullptr, "w", "is missing")
      .given("dy", dy);
}

namespace reference {  // T is float or double
template <typename T>
void gemm_forward(GemmDims d, const T* x, const T* w, const T* b, T* y);
template <typename T>
void gemm_backward(GemmDims d, const T* x, const T* w, const T* dy, T* dx, T* dw, T* db);
}  // namespace reference

/// Prepared once (oneDNN); results are bit-identical for teams of the same size. `workspace` is
/// 64-byte aligned. Not thread-safe.
namespace cpu {
/// How numbers are stored. A w of 16 bits is widened to the workspace, a part at a time, or with
/// `few_rows` in registers: the result has the bits of a product with F32 weights of the same
/// values.
enum class Stored : uint8_t { kF32, kBf16, kF16 };
inline int64_t size_of(Stored stored) { return stored == Stored::kF32 ? 4 : 2; }

/// Returns whether the CPU multiplies bfloat16 numbers as they are.
bool multiplies_bf16();

inline constexpr int64_t kFewRowsMax = 16;

/// With `bf16` (only if multiplies_bf16()), x, w and dy are stored in bfloat16 and multiplied as
/// they are; so is the result, y or dx, with `bf16_result`. With `few_rows` (only in the forward
/// pass, for N <= kFewRowsMax and not with `bf16`) the product takes the time of reading w, and
/// sums in another order than without: the bits of a row of y depend on this row and w alone.
struct GemmForm {
  Stored weight = Stored::kF32;
  bool bf16 = false, bf16_result = false, few_rows = false;
};

class GemmForward {
 public:
  GemmForward(const GemmDims& d, bool bias, Team& team, GemmForm form = {});
  ~GemmForward();
  int64_t workspace_bytes() const;
  void run(const void* x, const void* w, const float* b, void* y, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// run() may compute dx and dw only if the constructor was asked for them, db always, but not from
/// dy in bfloat16.
class GemmBackward {
 public:
  GemmBackward(const GemmDims& d, bool wants_dx, bool wants_dw, Team& team, GemmForm form = {});
  ~GemmBackward();
  int64_t workspace_bytes() const;
  void run(const void* x, const void* w, const void* dy, void* dx, float* dw, float* db,
           void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
}  // namespace cpu

}  // namespace trainyard::kernels
