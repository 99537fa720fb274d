// kernels/matmul.h: a batch of matrix products of the same size.
//
//   c[p] = a[a_of[p]] b[b_of[p]]        da[i] = sum over p with a_of[p] == i  dc[p] b[b_of[p]]^T
//                                       db[j] = sum over p with b_of[p] == j  a[a_of[p]]^T dc[p]
//
/// Shapes    a, da: matrices [M, K] one after the other; b, db [K, N]; c, dc [M, N], one for each
///           p. Every matrix of a and of b is used by at least one p.
/// Writes    all of each output that is not null, assigned.
/// Aliasing  none.
/// Numerics  sums over p run in order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace trainyard::kernels {

struct MatMulBatch {
  int64_t M, N, K;  // all >= 1
  std::vector<int64_t> a_of, b_of;
  int64_t a_count = 1, b_count = 1;
};

namespace reference {  // T is float or double
template <typename T>
void matmul_forward(const MatMulBatch& d, const T* a, const T* b, T* c);
template <typename T>
void matmul_backward(const MatMulBatch& d, const T* a, const T* b, const T* dc, T* da, T* db);
}  // namespace reference

/// Prepared once (oneDNN); results are bit-identical for teams of the same size. `workspace` is
/// 64-byte aligned. Not thread-safe.
namespace cpu {
class Team;  // kernels/cpu/team.h
class MatMulForward {
 public:
  MatMulForward(const MatMulBatch& d, Team& team);
  ~MatMulForward();
  int64_t workspace_bytes() const;
  void run(const float* a, const float* b, float* c, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// run() may compute da and db only if the constructor was asked for them.
class MatMulBackward {
 public:
  MatMulBackward(const MatMulBatch& d, bool wants_da, bool wants_db, Team& team);
  ~MatMulBackward();
  int64_t workspace_bytes() const;
  void run(const float* a, const float* b, const float* dc, float* da, float* db, void* workspace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
}  // namespace cpu

}  // namespace trainyard::kernels
