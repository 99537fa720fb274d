// kernels/cuda/copy_pieces.h: the device function that copies pieces (kernels/copy_pieces.h), for
// use at the end of any kernel.
#pragma once

#include "kernels/copy_pieces.h"
#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {

/// The pieces in the form of a kernel parameter.
struct Pieces {
  CopyPiece of[kCopyPiecesMax];
  int count = 0;
  int64_t words_max = 0;

  explicit Pieces(std::span<const CopyPiece> pieces) {
    for (const CopyPiece& piece : pieces) {
      of[count++] = piece;
      words_max = std::max(words_max, piece.words);
    }
  }
};

/// Copies one piece after another with all threads of the grid.
TRAINYARD_DEVICE void copy_words(const Pieces& pieces) {
  for (int p = 0; p < pieces.count; ++p) {
    const CopyPiece& piece = pieces.of[p];
    const auto* const from = static_cast<const uint32_t*>(piece.from);
    auto* const to = static_cast<uint32_t*>(piece.to);
    for (int64_t i = thread_index(); i < piece.words; i += thread_count()) to[i] = from[i];
  }
}

}  // namespace trainyard::kernels::cuda
