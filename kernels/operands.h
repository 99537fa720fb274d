// kernels/operands.h: how kernels are called, the same for all backends:
//
//   kernel(params, operands, run)
//
//   params    what is known when the kernel is prepared: sizes, and what the user chose
//   operands  addresses. More than a few stand in a struct of the contract, by name and with their
//             shapes. Such a struct serves all backends: T is float or double on the host, where
//             operands are pointers, and cuda::Views on a GPU.
//   run       what a backend adds. The namespace of its type is the backend's, so that
//             src/runtime/common/ calls kernels by their names alone.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/cuda/view.h"

namespace trainyard::kernels {

namespace cuda {
/// Stands for the numbers of a GPU in templates: float, stored in any format where In or Out say
/// so.
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
/// A tensor that is read, or written, and on a GPU may be stored in 16 bits.
template <typename T>
using InOf = typename OperandTypes<T>::In;
template <typename T>
using OutOf = typename OperandTypes<T>::Out;
/// An element of a tensor that is never stored in 16 bits: parameters, statistics, losses.
template <typename T>
using NumberOf = typename OperandTypes<T>::Number;

// `workspace` has as many bytes as the contract's ..._workspace_bytes says, is aligned as
// kernels/alignment.h says, and holds nothing before and after. nullptr where none is asked for.

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

/// Asynchronous on `stream`; a launch that failed is told by cudaPeekAtLastError().
namespace cuda {
struct Run {
  Run(CUstream_st* s, void* w = nullptr) : stream(s), workspace(w) {}
  CUstream_st* stream;
  void* workspace;
};
}  // namespace cuda

}  // namespace trainyard::kernels
