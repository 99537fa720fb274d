// kernels/resident_rows.h: builds batches from a dataset that is resident in a GPU's memory, in its
// stored format. A batch is given by its samples: where each begins, its target, and how its image
// is transformed.
//
//   words    x[n, e] = row[start[n] + e], 32-bit words without interpretation (floats or tokens)
//   bytes    x[n, c, p] = table[c, row[start[n] + (c, p)]]
//   moved    x[n, c, y, x] = the value of pixel source_of(move[n], y, x) of channel c, read like
//            words or bytes; fills[c, 0] for kBlackPixel, fills[c, 1] for kFilledPixel
//   target   target[n], 32 bits without interpretation; with windows: target[n, t] =
//            row[start[n] + t + 1]
//
/// Shapes    row: all samples, one after the other, or the tokens of a stream; table [C, 256];
///           fills [C, 2]; x [N, elements]; target [N], with windows [N, elements].
/// Writes    all of x, all of target unless it is nullptr, and the destinations of `copies`.
/// Aliasing  none, also not with the copies.
/// Numerics  nothing is computed: values are copied from the rows or the table.
/// Errors    none: the loader has checked that samples are within the rows.
#pragma once

#include <cstdint>

#include "kernels/copy_pieces.h"
#include "kernels/cuda/stream.h"
#include "kernels/math/host_device.h"

namespace trainyard::kernels {

/// Rows [top, bottom) and columns [left, right); empty by default.
struct PixelBox {
  int32_t top = 0, left = 0, bottom = 0, right = 0;
  TRAINYARD_HD bool contains(int32_t y, int32_t x) const {
    return y >= top && y < bottom && x >= left && x < right;
  }
};

/// The effect of flips, shifts and a filled box on an image: pixel (y, x) of the new image shows
/// pixel (first_y + step_y * y, first_x + step_x * x), where a step is 1 or -1, if (y, x) is in
/// `kept`, else black. `kept` and `filled` are boxes of the new image; `filled` takes precedence.
struct ImageMove {
  int32_t first_y = 0, first_x = 0, step_y = 1, step_x = 1;
  PixelBox kept;
  PixelBox filled;
};

inline constexpr int64_t kBlackPixel = -1, kFilledPixel = -2;
/// Returns the index of the source pixel that is shown at (y, x), for images W pixels wide.
TRAINYARD_HD inline int64_t source_of(const ImageMove& m, int64_t W, int32_t y, int32_t x) {
  if (m.filled.contains(y, x)) return kFilledPixel;
  if (!m.kept.contains(y, x)) return kBlackPixel;
  return int64_t{m.first_y + m.step_y * y} * W + (m.first_x + m.step_x * x);
}

/// One row of a batch.
struct alignas(16) ResidentSample {
  int64_t start = 0;    // index of the sample's first element in `rows`
  uint32_t target = 0;  // a class, or the bits of a float
  ImageMove move;       // only used if ResidentRows::moved
};
static_assert(sizeof(ResidentSample) == 64, "read in four loads of 16 bytes");

/// A resident dataset; all addresses are in device memory.
struct ResidentRows {
  const void* rows = nullptr;  // aligned to 16 bytes
  const float* table = nullptr;
  const float* fills = nullptr;
  int64_t elements = 1;         // elements of one sample
  int64_t C = 1, H = 1, W = 1;  // dimensions of an image, with C * H * W elements
  bool bytes = false;           // rows are images of 8-bit values; else of 32-bit words
  bool moved = false;           // samples are images with an ImageMove; else `fills` may be nullptr
  bool windows = false;  // samples are windows of a stream; else multiples of `elements` apart
};

/// Launches: 1, which also does at most kCopyPiecesMax copies. Asynchronous on `stream`;
/// cudaPeekAtLastError() reports a failed launch.
namespace cuda {
void gather_rows(const ResidentRows& resident, const ResidentSample* samples, int64_t count,
                 void* x, void* target, std::span<const CopyPiece> copies, CUstream_st* stream);
}

}  // namespace trainyard::kernels
