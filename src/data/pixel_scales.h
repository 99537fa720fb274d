// src/data/pixel_scales.h: the fixed scales to which the pixels of 8-bit images can be brought,
// other than that of the training images.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainyard {

/// The name of the scale that the training images' own mean and deviation give.
inline constexpr std::string_view kScaleOfDataset = "dataset";
/// The name of the scale in which a pixel is a share of the largest value.
inline constexpr std::string_view kScaleOfShares = "zero_to_one";

/// Pixels become (x / 255 - mean) / std.
struct FixedPixelScale {
  std::string_view name;
  std::vector<double> mean, std;  // by channel; a single value is for any number of channels
};

/// Returns the scale with this name; null if there is none, as for kScaleOfDataset.
const FixedPixelScale* find_pixel_scale(std::string_view name);

/// Returns all names, kScaleOfDataset first.
std::vector<std::string> pixel_scale_names();

}  // namespace trainyard
