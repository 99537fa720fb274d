// src/data/load/image_changes.h: changes of an image with given parameters, which augmentation
// draws at random. The functions are those of torchvision.transforms.functional, with bilinear
// interpolation and without antialiasing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainyard {

/// An image [C, H, W] that is changed in place. `scratch` is a buffer that calls may reuse.
struct ImageView {
  int64_t channels, height, width;
  std::span<float> pixels;
  std::vector<float>& scratch;

  int64_t area() const { return height * width; }
  std::span<float> plane(int64_t c) const {
    return pixels.subspan(static_cast<size_t>(c * area()), static_cast<size_t>(area()));
  }
};

void flip_horizontally(const ImageView& image);
void flip_vertically(const ImageView& image);
/// Moves the image up and left by so many pixels, or down and right by negative numbers. Pixels
/// that enter the image are black.
void shift(const ImageView& image, int64_t up, int64_t left);

struct Box {
  int64_t top, left, height, width;  // within the image, not empty
};
/// Scales a part of the image to the image's size.
void resized_crop(const ImageView& image, const Box& box);
/// Rotates counter-clockwise around the center. Pixels that enter the image are black.
void rotate(const ImageView& image, double degrees);
/// Sets the pixels of the box that are inside the image to `colour`, given by channel.
void fill_box(const ImageView& image, const Box& box, std::span<const float> colour);

// The following functions are for pixels in [0, 255]; their results are in this range, too.
void adjust_brightness(const ImageView& image, float factor);
void adjust_contrast(const ImageView& image, float factor);
// These two require three channels.
void adjust_saturation(const ImageView& image, float factor);
void adjust_hue(const ImageView& image, float turns);

}  // namespace trainyard
