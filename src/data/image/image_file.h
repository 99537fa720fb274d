// src/data/image/image_file.h: one JPEG or PNG file as pixels. The bytes are untrusted: what a
// header claims is checked before memory is taken, and an image that is cut short or damaged is
// refused.
//
// Pixels are those that Pillow's convert("RGB") or convert("L") gives of the image turned upright:
// alpha is dropped, a palette looked up, CMYK taken as Adobe writes it (inverted), 16-bit samples
// cut to their high byte. Color profiles and gamma are ignored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// What an image is before its pixels are decoded.
struct ImageInfo {
  int64_t height = 0;  // upright
  int64_t width = 0;
  bool colour = false;      // false if every pixel is gray by the image's own type or palette
  int32_t orientation = 1;  // of EXIF, 1..8; 1 is upright
};

/// Interleaved bytes [H, W, C], C 1 or 3.
struct ImagePixels {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> values;
};

/// Reads the part of `bytes` that is before the pixels. `what` names the image in messages.
/// Refusals: DATASET_INVALID for what is neither JPEG nor PNG, is cut short, has a type that is not
/// read, or more than kImagePixelsMax pixels.
Result<ImageInfo> read_image_info(std::string_view bytes, const std::string& what);

/// The pixels, upright, as `channels` (1 or 3). Refusals as above, and for damage in the pixels.
Result<ImagePixels> decode_image(std::string_view bytes, int64_t channels, const std::string& what);

}  // namespace trainyard
