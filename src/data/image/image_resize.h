// src/data/image/image_resize.h: resizes images to a common size.
//
// Resampling is bilinear. If the image shrinks, the triangular filter is widened to cover all
// source pixels of a target pixel, as in Pillow's BILINEAR and torchvision's antialiased resize.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include "src/data/image/image_file.h"
#include "src/tensor/shape.h"

namespace trainyard {

enum class ResizeMode : uint8_t {
  kNone,     // all images must have the target's size
  kStretch,  // scales height and width independently
  kCrop,     // scales the largest centered part that has the target's aspect ratio
  kPad,      // scales the whole image to fit and centers it on black
};
/// Returns one of "none", "stretch", "crop", "pad".
std::string_view name_of(ResizeMode mode);
std::optional<ResizeMode> find_resize(std::string_view name);

/// Resizes `pixels` to the shape `image` [C, H, W] and writes them to `out`. With kNone they must
/// have this size already. T is uint8_t or uint16_t.
template <typename T>
void place_image(const Pixels<T>& pixels, const Shape& image, ResizeMode mode,
                 std::span<std::type_identity_t<T>> out);

}  // namespace trainyard
