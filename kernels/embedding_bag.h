// kernels/embedding_bag.h: a row of tokens as the sum or mean of its tokens' vectors, without
// storing them one by one.
//
//   y[n] = s[n] * sum over t with token[n, t] != padding of table[token[n, t]]
//   s[n] = 1, or 1 / (how many tokens that are); of a row without any, y[n] = 0
//   dtable[v] = sum over (n, t) with token[n, t] == v != padding of s[n] * dy[n]
//
/// Shapes    table, dtable [V, D]; token [N, T] with values in [0, V); y, dy [N, D].
/// Writes    all of y and dtable, assigned: rows that no token names get 0.
/// Aliasing  none.
/// Numerics  sums run in the order of n, then t; one rounding of s per token.
/// Errors    none of its own: the dataset reader has checked the tokens.
#pragma once

#include <cstdint>

#include "kernels/cuda/view.h"

namespace trainyard::kernels {

struct EmbeddingBagDims {
  int64_t N, T, V, D;  // all >= 1
  bool mean;
  int64_t padding;  // the token that is left out; -1: none
};

namespace reference {  // T is float or double
template <typename T>
void embedding_bag(const EmbeddingBagDims& d, const T* table, const int32_t* token, T* y);
template <typename T>
void embedding_bag_backward(const EmbeddingBagDims& d, const int32_t* token, const T* dy,
                            T* dtable);
}  // namespace reference

/// The same bits for a team of any size: rows, or for the gradient columns, are shared out.
namespace cpu {
class Team;  // kernels/cpu/team.h
void embedding_bag(const EmbeddingBagDims& d, const float* table, const int32_t* token, float* y,
                   Team& team);
void embedding_bag_backward(const EmbeddingBagDims& d, const int32_t* token, const float* dy,
                            float* dtable, Team& team);
}  // namespace cpu

/// Launches: 1, and for the gradient 1 and those of kernels/cuda/scatter_rows.h. Asynchronous on
/// `stream`; a launch that failed is told by cudaPeekAtLastError().
namespace cuda {
void embedding_bag(const EmbeddingBagDims& d, In table, const int32_t* token, Out y,
                   CUstream_st* stream);
int64_t embedding_bag_backward_workspace_bytes(const EmbeddingBagDims& d);
void embedding_bag_backward(const EmbeddingBagDims& d, const int32_t* token, In dy, Out dtable,
                            void* workspace, CUstream_st* stream);
}  // namespace cuda

}  // namespace trainyard::kernels
