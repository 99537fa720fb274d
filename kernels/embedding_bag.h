// kernels/embedding_bag.h: turns a row of tokens into the sum or mean of their vectors, without
// storing the vectors one by one.
//
//   y[n] = s[n] * sum over t with token[n, t] != padding of table[token[n, t]]
//   s[n] = 1, or 1 / (the number of those tokens); for a row without any, y[n] = 0
//   dtable[v] = sum over (n, t) with token[n, t] == v != padding of s[n] * dy[n]
//
/// Shapes    table, dtable [V, D]; token [N, T] with values in [0, V); y, dy [N, D].
/// Writes    all of y and dtable, assigned: rows named by no token become 0.
/// Aliasing  none.
/// Numerics  sums run in the order of n, then t; each token's term is rounded once for s.
/// Errors    none: the dataset reader has checked the tokens.
#pragma once

#include <cstdint>

#include "kernels/contract.h"
#include "kernels/operands.h"

namespace trainyard::kernels {

struct EmbeddingBagDims {
  int64_t N, T, V, D;  // all >= 1
  bool mean;
  int64_t padding;  // the token that is left out; -1: none
};

inline Contract check(const char* kernel, const EmbeddingBagDims& d) {
  const Contract contract(kernel);
  contract.size("N", d.N).size("T", d.T).size("V", d.V).size("D", d.D);
  return contract;
}
template <typename Table, typename Y>
void check(const EmbeddingBagDims& d, const Table& table, const int32_t* token, const Y& y) {
  check("embedding_bag", d).given("table", table).given("token", token).given("y", y);
}
template <typename Dy, typename Table>
void check(const EmbeddingBagDims& d, const int32_t* token, const Dy& dy, const Table& dtable) {
  check("embedding_bag_backward", d).given("token", token).given("dy", dy).given("dtable", dtable);
}

namespace reference {  // T is float or double
template <typename T>
void embedding_bag(const EmbeddingBagDims& d, const T* table, const int32_t* token, T* y,
                   Run<T> run = {});
template <typename T>
void embedding_bag_backward(const EmbeddingBagDims& d, const int32_t* token, const T* dy, T* dtable,
                            Run<T> run = {});
}  // namespace reference

/// Results are bit-identical for any team size: forward splits rows over the team, backward
/// columns.
namespace cpu {
void embedding_bag(const EmbeddingBagDims& d, const float* table, const int32_t* token, float* y,
                   Run run);
void embedding_bag_backward(const EmbeddingBagDims& d, const int32_t* token, const float* dy,
                            float* dtable, Run run);
}  // namespace cpu

/// Launches: 1; backward 1 and those of kernels/cuda/scatter_rows.h.
namespace cuda {
void embedding_bag(const EmbeddingBagDims& d, In table, const int32_t* token, Out y, Run run);
int64_t embedding_bag_backward_workspace_bytes(const EmbeddingBagDims& d);
void embedding_bag_backward(const EmbeddingBagDims& d, const int32_t* token, In dy, Out dtable,
                            Run run);
}  // namespace cuda

}  // namespace trainyard::kernels
