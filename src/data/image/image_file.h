// src/data/image/image_file.h: decodes a JPEG or PNG file. The bytes are untrusted: the sizes in a
// header are checked before memory is allocated, and a truncated or damaged image is refused.
//
// The pixels of decode_image() are those of Pillow's convert("RGB") or convert("L") for the image
// turned upright: alpha is dropped, palettes are looked up, CMYK is read in Adobe's inverted form,
// and 16-bit samples are reduced to their high byte. Color profiles and gamma are ignored.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"

namespace trainyard {

/// The properties of an image that are known before its pixels are decoded.
struct ImageInfo {
  int64_t height = 0;  // of the image turned upright
  int64_t width = 0;
  bool colour = false;      // false if the image's type or palette has only grays
  bool deep = false;        // true for a PNG with 16 bits per sample
  int32_t orientation = 1;  // EXIF orientation, 1..8; 1 is upright
};

/// Interleaved samples [H, W, C], where C is 1 or 3.
template <typename T>
struct Pixels {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<T> values;
};
using ImagePixels = Pixels<uint8_t>;
using DeepPixels = Pixels<uint16_t>;

/// Reads only the part of `bytes` before the pixels. `what` names the image in messages. Refuses,
/// by DATASET_INVALID, a file that is neither JPEG nor PNG, is truncated, or has an unsupported
/// type or more than kImagePixelsMax pixels.
Result<ImageInfo> read_image_info(std::string_view bytes, const std::string& what);

/// Decodes the pixels of the image turned upright, with `channels` (1 or 3) channels. Refuses
/// what read_image_info() refuses, and damaged pixels.
Result<ImagePixels> decode_image(std::string_view bytes, int64_t channels, const std::string& what);

/// Decodes an image to gray samples of 16 bits. Those of gray PNGs with 16 bits are unchanged;
/// those of other images are samples of 8 bits times 257, so that white stays white.
Result<DeepPixels> decode_deep_image(std::string_view bytes, const std::string& what);

}  // namespace trainyard
