// kernels/copy_pieces.h: copies several small pieces of memory in one launch, since a launch per
// piece would take longer than the copying itself.
//
/// Shapes    to, from [words] for each piece; 32-bit words are copied without interpretation.
/// Writes    all of `to`.
/// Aliasing  none, neither within a piece nor between pieces.
/// Errors    none.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/stream.h"

namespace trainyard::kernels {

/// Addresses in device memory, each a multiple of 4 bytes.
struct CopyPiece {
  void* to = nullptr;
  const void* from = nullptr;
  int64_t words = 0;
};
/// The largest number of pieces in one launch.
inline constexpr size_t kCopyPiecesMax = 8;

/// Launches: 1, for at most kCopyPiecesMax pieces. Asynchronous on `stream`; cudaPeekAtLastError()
/// reports a failed launch.
namespace cuda {
void copy_pieces(std::span<const CopyPiece> pieces, CUstream_st* stream);
}

}  // namespace trainyard::kernels
