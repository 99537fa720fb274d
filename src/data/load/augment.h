// src/data/load/augment.h: training images, changed at random each time they are seen.
//
// The result depends only on (seed, epoch, row) and the list of augmentations, never on threads,
// batches or the number of requests. Every draw is Philox of the seed, keyed by the position in the
// list, the epoch and the row. Images are in raw units, before standardization.
//
// Meanings follow torchvision's transforms of the same names, with bilinear interpolation; cutout
// is DeVries & Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout"
// (2017).
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/held_rows.h"
#include "src/tensor/shape.h"

namespace trainyard {

struct RandomHorizontalFlip {
  double p = 0.5;
};
struct RandomVerticalFlip {
  double p = 0.5;
};
/// The image with `padding` black pixels on each side, cut to its size at a random place.
struct RandomCrop {
  int64_t padding = 4;
};
/// A part of the image, of a share of its area and with an aspect ratio (width / height) within the
/// bounds, stretched to its size.
struct RandomResizedCrop {
  double scale_min = 0.08, scale_max = 1;
  double ratio_min = 3.0 / 4, ratio_max = 4.0 / 3;
};
/// Around the center by an angle within [-degrees, degrees]; corners become black.
struct RandomRotation {
  double degrees = 0;
};
/// Factors of 1 - x to 1 + x, never below 0, each in random order; a shift of the hue within [-hue,
/// hue] of a full turn. For pixels of 8 bits; saturation and hue for three channels.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
};
/// A square of this many pixels becomes the channels' mean; its center is anywhere in the image.
struct Cutout {
  int64_t size = 8;
};

using Augmentation = std::variant<RandomHorizontalFlip, RandomVerticalFlip, RandomCrop,
                                  RandomResizedCrop, RandomRotation, ColorJitter, Cutout>;

/// True if all that they do to an image is an ImageMove: flips, crops with padding, and one cutout.
bool moves_alone(std::span<const Augmentation> list);

/// Const and thread-safe after construction.
class Augmenter {
 public:
  /// Does nothing.
  Augmenter() = default;
  /// `image` is [C, H, W]; `mean` the channels' means, in raw units.
  Augmenter(std::vector<Augmentation> list, const Shape& image, std::vector<float> mean);
  bool empty() const { return list_.empty(); }

  /// Changes one image [C, H, W] in place; `scratch` is reused from call to call.
  void apply(std::span<float> image, uint64_t seed, int64_t epoch, int64_t row,
             std::vector<float>& scratch) const;
  /// What apply() would do to that image, by the same draws, for who does it elsewhere: only of a
  /// list that moves_alone().
  kernels::ImageMove draw_move(uint64_t seed, int64_t epoch, int64_t row) const;
  /// What a cutout fills with, by channel.
  std::span<const float> mean() const { return mean_; }

 private:
  std::vector<Augmentation> list_;
  int64_t channels_ = 0, height_ = 0, width_ = 0;
  std::vector<float> mean_;
};

}  // namespace trainyard
