// kernels/cuda/copy_pieces.h: copies of pieces (kernels/copy_pieces.h) by the threads of any
// kernel.
#pragma once

#include "kernels/copy_pieces.h"
#include "kernels/cuda/launch.h"

namespace trainyard::kernels::cuda {

/// As a parameter of a kernel.
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

/// By all threads of the grid, one piece after another.
TRAINYARD_DEVICE void copy_words(const Pieces& pieces) {
  for (int p = 0; p < pieces.count; ++p) {
    const CopyPiece& piece = pieces.of[p];
    const auto* const from = static_cast<const uint32_t*>(piece.from);
    auto* const to = static_cast<uint32_t*>(piece.to);
    for (int64_t i = thread_index(); i < piece.words; i += thread_count()) to[i] = from[i];
  }
}

}  // namespace trainyard::kernels::cuda
