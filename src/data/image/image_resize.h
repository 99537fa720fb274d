// src/data/image/image_resize.h: images of any size as one size.
//
// Resampling is bilinear with the filter widened where the image shrinks (a triangle over all the
// pixels that fall into one), as Pillow's BILINEAR and torchvision's antialiased resize have it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "src/data/image/image_file.h"
#include "src/tensor/shape.h"

namespace trainyard {

enum class ResizeMode : uint8_t {
  kNone,     // images have the size already; others are refused
  kStretch,  // each side on its own
  kCrop,     // the largest part in the middle that has the target's shape, then resized
  kPad,      // resized to fit in whole, black around it, in the middle
};
/// "none", "stretch", "crop", "pad".
std::string_view name_of(ResizeMode mode);
std::optional<ResizeMode> find_resize(std::string_view name);

/// Writes `pixels` as `image` [C, H, W] to `out`. With kNone the size must be the image's.
void place_image(const ImagePixels& pixels, const Shape& image, ResizeMode mode,
                 std::span<uint8_t> out);

}  // namespace trainyard
