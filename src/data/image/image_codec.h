// src/data/image/image_codec.h: the functions of jpeg_file.cc and png_file.cc that image_file.cc
// uses. They return pixels as the file stores them, not turned upright.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/data/image/image_file.h"

namespace trainyard {

bool is_jpeg(std::string_view bytes);
bool is_png(std::string_view bytes);

/// `height` and `width` are those stored in the file, before the image is turned upright.
Result<ImageInfo> read_jpeg_info(std::string_view bytes, const std::string& what);
Result<ImageInfo> read_png_info(std::string_view bytes, const std::string& what);

/// The result has 1 channel if the file is gray, else 3.
Result<ImagePixels> decode_jpeg(std::string_view bytes, const std::string& what);
Result<ImagePixels> decode_png(std::string_view bytes, const std::string& what);
/// Decodes a gray PNG with 16 bits per sample.
Result<DeepPixels> decode_deep_png(std::string_view bytes, const std::string& what);

/// Returns the orientation, 1..8, in EXIF data (a TIFF header with its first directory, without
/// "Exif\0\0"). If it is missing or damaged, returns 1, as image viewers do.
int32_t exif_orientation(std::string_view tiff);

/// Refuses images without pixels or with more than kImagePixelsMax.
Status check_image_size(int64_t height, int64_t width, const std::string& what);
/// Refuses a size that needs more than `most`, what `file_bytes` bytes can hold of the same unit.
Status check_file_holds(size_t needed, size_t most, int64_t height, int64_t width,
                        size_t file_bytes, const std::string& what);

}  // namespace trainyard
