#include "src/data/augment.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/check.h"
#include "src/base/philox.h"
#include "src/data/image_changes.h"

namespace trainyard {
namespace {

constexpr int kCropTries = 10;

/// The draws of one augmentation for one image, in a fixed order.
class Draws {
 public:
  Draws(uint64_t seed, size_t place, int64_t epoch, int64_t row)
      : seed_(seed),
        stream_(stream_of("augment") + static_cast<uint32_t>(place)),
        epoch_(static_cast<uint64_t>(epoch)),
        first_(static_cast<uint64_t>(row) * kPerRow) {}

  /// In [low, high).
  double uniform(double low, double high) {
    TRAINYARD_DCHECK(next_ < kPerRow, "too many draws for one image");
    const uint32_t u = math::philox_u32(seed_, stream_, epoch_, first_ + next_++);
    return low + (high - low) * (u * 0x1p-32);
  }
  bool chance(double p) { return uniform(0, 1) < p; }
  /// A whole number in [0, count).
  int64_t below(int64_t count) {
    return std::min(static_cast<int64_t>(uniform(0, static_cast<double>(count))), count - 1);
  }

 private:
  static constexpr uint64_t kPerRow = 64;
  uint64_t seed_;
  uint32_t stream_;
  uint64_t epoch_;
  uint64_t first_;
  uint64_t next_ = 0;
};

Box draw_box(const RandomResizedCrop& crop, Draws& draws, const ImageView& image) {
  const auto area = static_cast<double>(image.area());
  for (int i = 0; i < kCropTries; ++i) {
    const double wanted = area * draws.uniform(crop.scale_min, crop.scale_max);
    const double ratio =
        std::exp(draws.uniform(std::log(crop.ratio_min), std::log(crop.ratio_max)));
    const auto width = static_cast<int64_t>(std::lround(std::sqrt(wanted * ratio)));
    const auto height = static_cast<int64_t>(std::lround(std::sqrt(wanted / ratio)));
    const bool fits = width >= 1 && width <= image.width && height >= 1 && height <= image.height;
    if (!fits) continue;
    const int64_t top = draws.below(image.height - height + 1);
    return {top, draws.below(image.width - width + 1), height, width};
  }
  // The largest part from the middle whose ratio is allowed.
  const double ratio =
      std::clamp(static_cast<double>(image.width) / static_cast<double>(image.height),
                 crop.ratio_min, crop.ratio_max);
  const auto h = static_cast<double>(image.height), w = static_cast<double>(image.width);
  const auto width = std::clamp<int64_t>(std::lround(h * ratio), 1, image.width);
  const auto height = std::clamp<int64_t>(std::lround(w / ratio), 1, image.height);
  return {(image.height - height) / 2, (image.width - width) / 2, height, width};
}

/// One augmentation of one image.
struct Apply {
  Draws& draws;
  const ImageView& image;
  std::span<const float> mean;

  void operator()(const RandomHorizontalFlip& flip) const {
    if (draws.chance(flip.p)) flip_horizontally(image);
  }
  void operator()(const RandomVerticalFlip& flip) const {
    if (draws.chance(flip.p)) flip_vertically(image);
  }
  void operator()(const RandomCrop& crop) const {
    const int64_t up = draws.below(2 * crop.padding + 1) - crop.padding;
    shift(image, up, draws.below(2 * crop.padding + 1) - crop.padding);
  }
  void operator()(const RandomResizedCrop& crop) const {
    resized_crop(image, draw_box(crop, draws, image));
  }
  void operator()(const RandomRotation& rotation) const {
    rotate(image, draws.uniform(-rotation.degrees, rotation.degrees));
  }
  void operator()(const ColorJitter& jitter) const {
    std::array<int, 4> order = {0, 1, 2, 3};
    for (size_t i = order.size() - 1; i > 0; --i) {  // Fisher and Yates
      std::swap(order[i], order[static_cast<size_t>(draws.below(static_cast<int64_t>(i) + 1))]);
    }
    const auto factor = [&](double strength) {
      return static_cast<float>(draws.uniform(std::max(0.0, 1 - strength), 1 + strength));
    };
    const float brightness = factor(jitter.brightness), contrast = factor(jitter.contrast);
    const float saturation = factor(jitter.saturation);
    const auto hue = static_cast<float>(draws.uniform(-jitter.hue, jitter.hue));
    for (const int step : order) {
      if (step == 0 && jitter.brightness > 0) adjust_brightness(image, brightness);
      if (step == 1 && jitter.contrast > 0) adjust_contrast(image, contrast);
      if (step == 2 && jitter.saturation > 0) adjust_saturation(image, saturation);
      if (step == 3 && jitter.hue > 0) adjust_hue(image, hue);
    }
  }
  void operator()(const Cutout& cutout) const {
    const int64_t top = draws.below(image.height) - cutout.size / 2;
    const int64_t left = draws.below(image.width) - cutout.size / 2;
    fill_box(image, {top, left, cutout.size, cutout.size}, mean);
  }
};

}  // namespace

Augmenter::Augmenter(std::vector<Augmentation> list, const Shape& image, std::vector<float> mean)
    : list_(std::move(list)),
      channels_(image[0]),
      height_(image[1]),
      width_(image[2]),
      mean_(std::move(mean)) {
  TRAINYARD_CHECK(std::ssize(mean_) == channels_, "a mean for each channel");
}

void Augmenter::apply(std::span<float> pixels, uint64_t seed, int64_t epoch, int64_t row,
                      std::vector<float>& scratch) const {
  const ImageView image{channels_, height_, width_, pixels, scratch};
  for (size_t place = 0; place < list_.size(); ++place) {
    Draws draws(seed, place, epoch, row);
    std::visit(Apply{draws, image, mean_}, list_[place]);
  }
}

}  // namespace trainyard
