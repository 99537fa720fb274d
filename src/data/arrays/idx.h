// src/data/arrays/idx.h: reads the IDX format of MNIST and similar datasets from untrusted bytes.
//
//   2 zero bytes, element type, rank; rank sizes, 32 bit, big-endian; the elements, big-endian.
//
// Images are unsigned bytes (0x08) or 32-bit floats (0x0D), [N, H, W] or [N, C, H, W]; labels are
// unsigned bytes or 32-bit integers (0x0C), [N]. The header's sizes are checked against the size of
// the file before memory is allocated, and the file must have no further bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/data/files/byte_source.h"
#include "src/tensor/shape.h"

namespace trainyard {

struct IdxImages {
  int64_t rows = 0;
  Shape image;  // [C, H, W]
  DType dtype = DType::kU8;
  std::vector<uint8_t> u8;
  std::vector<float> f32;  // only finite numbers
};

/// `what` is the source's role in messages. Refuses more than `bytes_max` bytes of elements.
Result<IdxImages> read_idx_images(ByteSource& source, const std::string& what, int64_t bytes_max);
/// Labels must be at least 0, below kClassesMax, and below kUnnamedClassesMax plus 8 for each row.
Result<std::vector<int32_t>> read_idx_labels(ByteSource& source, const std::string& what);

}  // namespace trainyard
