// kernels/operands.h: the calling convention of kernels, the same for all backends:
//
//   kernel(params, operands, run)
//
//   params    the values known when the kernel is prepared: sizes, and the user's options
//   operands  addresses. If there are more than a few, they are members of a struct in the
//   contract,
//             with names and shapes. Such a struct serves all backends: T is float or double on the
//             host, where operands are pointers, and cuda::Views on a GPU.
//   run       the backend's own arguments. The namespace of its type is the backend's, so that
//             argument-dependent lookup finds the kernel when src/runtime/common/ calls it by its
//             unqualified name.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels {

namespace cuda {
/// Used in templates in place of float or double: on a GPU, numbers are float, and tensors passed
/// as In or Out may be stored in any format.
struct Views {};
}  // namespace cuda

template <typename T>
struct OperandTypes {
  using In = const T*;
  using Out = T*;
  using Number = T;
};
template <>
struct OperandTypes<cuda::Views> {
  using In = cuda::In;
  using Out = cuda::Out;
  using Number = float;
};
/// A tensor that is read (InOf) or written (OutOf), and may be stored in 16 bits on a GPU.
template <typename T>
using InOf = typename OperandTypes<T>::In;
template <typename T>
using OutOf = typename OperandTypes<T>::Out;
/// An element of a tensor that is never stored in 16 bits: parameters, statistics, losses.
template <typename T>
using NumberOf = typename OperandTypes<T>::Number;

// `workspace` has as many bytes as the contract's ..._workspace_bytes says and the alignment of
// kernels/alignment.h. Its contents are undefined before and after the call. It may be nullptr if
// the kernel needs none.

namespace reference {
/// Computes in T, float or double.
template <typename T>
struct Run {
  void* workspace = nullptr;
};
}  // namespace reference

namespace cpu {
class Team;  // kernels/cpu/team.h
struct Run {
  Run(Team& t, void* w = nullptr) : team(t), workspace(w) {}
  Team& team;
  void* workspace;
};
}  // namespace cpu

/// Asynchronous on `stream`; cudaPeekAtLastError() reports a failed launch.
namespace cuda {
struct Run {
  Run(CUstream_st* s, void* w = nullptr) : stream(s), workspace(w) {}
  CUstream_st* stream;
  void* workspace;
};
}  // namespace cuda

}  // namespace trainyard::kernels
