// src/data/load/augment.h: changes training images at random in every epoch.
//
// The result depends only on (seed, epoch, row) and the list of augmentations, never on threads,
// batches or the number of requests. Every random number is drawn by Philox from the seed, the
// position in the list, the epoch and the row. Images are in the units in which they are stored,
// before standardization.
//
// The augmentations are torchvision's transforms of the same names, with bilinear interpolation;
// cutout is that of DeVries & Taylor, "Improved Regularization of Convolutional Neural Networks
// with Cutout" (2017).
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/resident_rows.h"
#include "src/tensor/shape.h"

namespace trainyard {

struct RandomHorizontalFlip {
  double p = 0.5;
};
struct RandomVerticalFlip {
  double p = 0.5;
};
/// Pads the image with `padding` black pixels on each side and crops it to its size at a random
/// place.
struct RandomCrop {
  int64_t padding = 4;
};
/// Scales a random part of the image to the image's size. The part's share of the area and its
/// aspect ratio (width / height) are within the bounds.
struct RandomResizedCrop {
  double scale_min = 0.08, scale_max = 1;
  double ratio_min = 3.0 / 4, ratio_max = 4.0 / 3;
};
/// Rotates around the center by an angle within [-degrees, degrees]; corners become black.
struct RandomRotation {
  double degrees = 0;
};
/// Scales brightness, contrast and saturation by random factors between 1 - x and 1 + x, never
/// below 0, and shifts the hue within [-hue, hue] of a full turn, all in random order. The
/// pixels must have 8 bits; saturation and hue require three channels.
struct ColorJitter {
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
};
/// Fills a square with sides of `size` pixels with the channels' mean; its center is anywhere in
/// the image.
struct Cutout {
  int64_t size = 8;
};

using Augmentation = std::variant<RandomHorizontalFlip, RandomVerticalFlip, RandomCrop,
                                  RandomResizedCrop, RandomRotation, ColorJitter, Cutout>;

/// Returns true if an ImageMove can express all augmentations: flips, crops with padding, and at
/// most one cutout.
bool moves_alone(std::span<const Augmentation> list);

/// Const and thread-safe after construction.
class Augmenter {
 public:
  /// An augmenter that changes nothing.
  Augmenter() = default;
  /// `image` is [C, H, W]; `mean` contains the channels' means in the units of the stored pixels.
  Augmenter(std::vector<Augmentation> list, const Shape& image, std::vector<float> mean);
  bool empty() const { return list_.empty(); }

  /// Changes an image [C, H, W] in place. `scratch` is a buffer that calls may reuse.
  void apply(std::span<float> image, uint64_t seed, int64_t epoch, int64_t row,
             std::vector<float>& scratch) const;
  /// Returns the random change of apply() as an ImageMove, for a device that applies it itself. The
  /// list must pass moves_alone().
  kernels::ImageMove draw_move(uint64_t seed, int64_t epoch, int64_t row) const;
  /// Returns the values with which a cutout fills, by channel.
  std::span<const float> mean() const { return mean_; }

 private:
  std::vector<Augmentation> list_;
  int64_t channels_ = 0, height_ = 0, width_ = 0;
  std::vector<float> mean_;
};

}  // namespace trainyard
