// kernels/copy_pieces.h: copies of several small pieces of memory in one launch, where a copy of
// each would cost more than its bytes.
//
/// Shapes    to, from [words] of each piece, words of 32 bits as they are.
/// Writes    all of `to`.
/// Aliasing  none, within a piece or between two.
/// Errors    none of its own.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/stream.h"

namespace trainyard::kernels {

/// In the device's memory, each at a multiple of 4 bytes.
struct CopyPiece {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t words = 0;
};
/// Of one launch.
inline constexpr size_t kCopyPiecesMax = 8;

/// Launches: 1, of at most kCopyPiecesMax pieces. Asynchronous on `stream`; cudaPeekAtLastError()
/// reports a failed launch.
namespace cuda {
void copy_pieces(std::span<const CopyPiece> pieces, CUstream_st* stream);
}

}  // namespace trainyard::kernels
