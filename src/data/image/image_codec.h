// src/data/image/image_codec.h: what jpeg_file.cc and png_file.cc do for image_file.cc: pixels as
// the file has them, before they are turned upright.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/data/image/image_file.h"

namespace trainyard {

bool is_jpeg(std::string_view bytes);
bool is_png(std::string_view bytes);

/// height and width are those of the file, not upright.
Result<ImageInfo> read_jpeg_info(std::string_view bytes, const std::string& what);
Result<ImageInfo> read_png_info(std::string_view bytes, const std::string& what);

/// With 1 channel if the file is gray, else 3.
Result<ImagePixels> decode_jpeg(std::string_view bytes, const std::string& what);
Result<ImagePixels> decode_png(std::string_view bytes, const std::string& what);

/// The orientation, 1..8, in a TIFF header with its first directory (without "Exif\0\0"); 1 if
/// there is none or it is damaged, as in viewers.
int32_t exif_orientation(std::string_view tiff);

/// Refuses images without pixels or with more than kImagePixelsMax.
Status check_image_size(int64_t height, int64_t width, const std::string& what);

}  // namespace trainyard
