#include "src/data/pixel_scales.h"

#include <algorithm>

namespace trainyard {

namespace {

const std::vector<FixedPixelScale>& fixed_scales() {
  // Mean and deviation of ImageNet's training images, as torchvision and timm use them:
  // https://pytorch.org/vision/stable/models.html
  static const std::vector<FixedPixelScale> scales = {
      {"imagenet", {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}},
      {"minus_one_to_one", {0.5}, {0.5}},
      {kScaleOfShares, {0}, {1}},
  };
  return scales;
}

}  // namespace

const FixedPixelScale* find_pixel_scale(std::string_view name) {
  const auto it = std::ranges::find(fixed_scales(), name, &FixedPixelScale::name);
  return it == fixed_scales().end() ? nullptr : &*it;
}

std::vector<std::string> pixel_scale_names() {
  std::vector<std::string> names = {std::string(kScaleOfDataset)};
  for (const FixedPixelScale& scale : fixed_scales()) names.emplace_back(scale.name);
  return names;
}

}  // namespace trainyard
