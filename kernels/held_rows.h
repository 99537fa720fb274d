// kernels/held_rows.h: batches of a dataset that lies in a GPU's memory as it is stored. A batch is
// asked for by its samples: where each begins, its target, and how its image is moved.
//
//   words    x[n, e] = row[start[n] + e], words of 32 bits as they are (floats or tokens)
//   bytes    x[n, c, p] = table[c, row[start[n] + (c, p)]]
//   moved    x[n, c, y, x] = the value of pixel source_of(move[n], y, x) of channel c, by one of
//            the two above; fills[c, 0] where that is kBlackPixel, fills[c, 1] where kFilledPixel
//   target   target[n], 32 bits as they are; of windows: target[n, t] = row[start[n] + t + 1]
//
/// Shapes    row: all samples, one behind the other, or the tokens of a stream; table [C, 256];
///           fills [C, 2]; x [N, elements]; target [N], of windows [N, elements].
/// Writes    all of x, and of target unless it is nullptr; all that `copies` say.
/// Aliasing  none, with the copies neither.
/// Numerics  nothing is computed: values come from the row or the table.
/// Errors    none of its own: the loader has checked that samples lie within the rows.
#pragma once

#include <cstdint>

#include "kernels/copy_pieces.h"
#include "kernels/cuda/stream.h"
#include "kernels/math/host_device.h"

namespace trainyard::kernels {

/// Rows from top on, before bottom, and columns likewise. Empty where there are none.
struct PixelBox {
  int32_t top = 0, left = 0, bottom = 0, right = 0;
  TRAINYARD_HD bool contains(int32_t y, int32_t x) const {
    return y >= top && y < bottom && x >= left && x < right;
  }
};

/// What flips, shifts and a filled box make of an image: pixel (y, x) shows pixel
/// (first_y + step_y * y, first_x + step_x * x), a step being 1 or -1, if it is in `kept`.
/// `kept` and `filled` lie in the new image.
struct ImageMove {
  int32_t first_y = 0, first_x = 0, step_y = 1, step_x = 1;
  PixelBox kept;
  PixelBox filled;
};

inline constexpr int64_t kBlackPixel = -1, kFilledPixel = -2;
/// The pixel of an image of rows of W that is shown at (y, x).
TRAINYARD_HD inline int64_t source_of(const ImageMove& m, int64_t W, int32_t y, int32_t x) {
  if (m.filled.contains(y, x)) return kFilledPixel;
  if (!m.kept.contains(y, x)) return kBlackPixel;
  return int64_t{m.first_y + m.step_y * y} * W + (m.first_x + m.step_x * x);
}

/// One row of a batch.
struct alignas(16) HeldSample {
  int64_t start = 0;    // its first element
  uint32_t target = 0;  // a class, or the bits of a float
  ImageMove move;       // where rows are moved
};
static_assert(sizeof(HeldSample) == 64, "read in four loads of 16 bytes");

/// In the device's memory.
struct HeldRows {
  const void* rows = nullptr;  // aligned to 16
  const float* table = nullptr;
  const float* fills = nullptr;
  int64_t elements = 1;         // of one sample
  int64_t C = 1, H = 1, W = 1;  // of an image: C * H * W elements
  bool bytes = false;           // images of 8 bits; else words
  bool moved = false;           // images; else `fills` may be nullptr
  bool windows = false;  // of a stream of tokens; else samples begin at multiples of elements
};

/// Launches: 1, at most kCopyPiecesMax copies within it. Asynchronous on `stream`;
/// cudaPeekAtLastError() reports a failed launch.
namespace cuda {
void gather_rows(const HeldRows& held, const HeldSample* samples, int64_t count, void* x,
                 void* target, std::span<const CopyPiece> copies, CUstream_st* stream);
}

}  // namespace trainyard::kernels
