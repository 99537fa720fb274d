// src/data/load/image_changes.h: changes of one image, with their parameters given: what
// augmentation draws at random. Meanings are those of torchvision.transforms.functional, with
// bilinear interpolation and without antialiasing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trainyard {

/// Planes of [H, W], one after another, in place. `scratch` is reused from call to call.
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
/// Moves the image up and left by so many pixels (down and right if they are less than 0); what
/// comes in is black.
void shift(const ImageView& image, int64_t up, int64_t left);

struct Box {
  int64_t top, left, height, width;  // within the image, not empty
};
/// Stretches a part of the image to its whole size.
void resized_crop(const ImageView& image, const Box& box);
/// Counter-clockwise around the center; what comes in is black.
void rotate(const ImageView& image, double degrees);
/// Sets the pixels of a box that are inside the image to `color`, by channel.
void fill_box(const ImageView& image, const Box& box, std::span<const float> colour);

// Pixels from 0 to 255, and results too.
void adjust_brightness(const ImageView& image, float factor);
void adjust_contrast(const ImageView& image, float factor);
// Three channels.
void adjust_saturation(const ImageView& image, float factor);
void adjust_hue(const ImageView& image, float turns);

}  // namespace trainyard
