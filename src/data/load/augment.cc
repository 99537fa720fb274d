#include "src/data/load/augment.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/check.h"
#include "src/base/philox.h"
#include "src/data/load/image_changes.h"

namespace trainyard {
namespace {

constexpr int kCropTries = 10;

/// Draws the random numbers of an augmentation for an image, in a fixed order.
class Draws {
 public:
  Draws(uint64_t seed, size_t place, int64_t epoch, int64_t row)
      : seed_(seed),
        stream_(stream_of("augment") + static_cast<uint32_t>(place)),
        epoch_(static_cast<uint64_t>(epoch)),
        first_(static_cast<uint64_t>(row) * kPerRow) {}

  /// Returns a number in [low, high).
  double uniform(double low, double high) {
    TRAINYARD_DCHECK(next_ < kPerRow, "too many draws for one image");
    const uint32_t u = math::philox_u32(seed_, stream_, epoch_, first_ + next_++);
    return low + (high - low) * (u * 0x1p-32);
  }
  bool chance(double p) { return uniform(0, 1) < p; }
  /// Returns a whole number in [0, count).
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

// A change of one image: an augmentation with its random numbers drawn.
struct NoChange {};
struct Flip {
  bool vertical;
};
struct Shift {
  int64_t up, left;
};
struct ResizedCrop {
  Box box;
};
struct Rotation {
  double degrees;
};
struct ColorChange {
  std::array<int, 4> order;  // the order of 0 brightness, 1 contrast, 2 saturation and 3 hue
  std::array<bool, 4> any;   // whether each of them is changed at all
  float brightness, contrast, saturation, hue;
};
struct Fill {
  Box box;
};
using Change = std::variant<NoChange, Flip, Shift, ResizedCrop, Rotation, ColorChange, Fill>;

/// Draws the change for an augmentation. Only this class draws, so that apply() and draw_move() use
/// the same numbers.
struct Draw {
  Draws& draws;
  int64_t height, width;  // of the image

  Change operator()(const RandomHorizontalFlip& flip) const {
    return draws.chance(flip.p) ? Change(Flip{.vertical = false}) : NoChange();
  }
  Change operator()(const RandomVerticalFlip& flip) const {
    return draws.chance(flip.p) ? Change(Flip{.vertical = true}) : NoChange();
  }
  Change operator()(const RandomCrop& crop) const {
    const int64_t up = draws.below(2 * crop.padding + 1) - crop.padding;
    return Shift{up, draws.below(2 * crop.padding + 1) - crop.padding};
  }
  Change operator()(const RandomResizedCrop& crop) const { return ResizedCrop{draw_box(crop)}; }
  Change operator()(const RandomRotation& rotation) const {
    return Rotation{draws.uniform(-rotation.degrees, rotation.degrees)};
  }
  Change operator()(const ColorJitter& jitter) const {
    ColorChange change{};
    change.order = {0, 1, 2, 3};
    std::array<int, 4>& order = change.order;
    for (size_t i = order.size() - 1; i > 0; --i) {  // Fisher-Yates shuffle
      std::swap(order[i], order[static_cast<size_t>(draws.below(static_cast<int64_t>(i) + 1))]);
    }
    const auto factor = [&](double strength) {
      return static_cast<float>(draws.uniform(std::max(0.0, 1 - strength), 1 + strength));
    };
    change.any = {jitter.brightness > 0, jitter.contrast > 0, jitter.saturation > 0,
                  jitter.hue > 0};
    change.brightness = factor(jitter.brightness);
    change.contrast = factor(jitter.contrast);
    change.saturation = factor(jitter.saturation);
    change.hue = static_cast<float>(draws.uniform(-jitter.hue, jitter.hue));
    return change;
  }
  Change operator()(const Cutout& cutout) const {
    const int64_t top = draws.below(height) - cutout.size / 2;
    return Fill{{top, draws.below(width) - cutout.size / 2, cutout.size, cutout.size}};
  }

 private:
  Box draw_box(const RandomResizedCrop& crop) const;
};

Box Draw::draw_box(const RandomResizedCrop& crop) const {
  const auto h = static_cast<double>(height), w = static_cast<double>(width);
  for (int i = 0; i < kCropTries; ++i) {
    const double wanted =
        static_cast<double>(height * width) * draws.uniform(crop.scale_min, crop.scale_max);
    const double ratio =
        std::exp(draws.uniform(std::log(crop.ratio_min), std::log(crop.ratio_max)));
    const auto wide = static_cast<int64_t>(std::lround(std::sqrt(wanted * ratio)));
    const auto high = static_cast<int64_t>(std::lround(std::sqrt(wanted / ratio)));
    const bool fits = wide >= 1 && wide <= width && high >= 1 && high <= height;
    if (!fits) continue;
    const int64_t top = draws.below(height - high + 1);
    return {top, draws.below(width - wide + 1), high, wide};
  }
  // If no try fits, the largest centered part with an allowed aspect ratio is used.
  const double ratio = std::clamp(w / h, crop.ratio_min, crop.ratio_max);
  const auto wide = std::clamp<int64_t>(std::lround(h * ratio), 1, width);
  const auto high = std::clamp<int64_t>(std::lround(w / ratio), 1, height);
  return {(height - high) / 2, (width - wide) / 2, high, wide};
}

struct Apply {
  const ImageView& image;
  std::span<const float> mean;

  void operator()(const NoChange&) const {}
  void operator()(const Flip& flip) const {
    flip.vertical ? flip_vertically(image) : flip_horizontally(image);
  }
  void operator()(const Shift& s) const { shift(image, s.up, s.left); }
  void operator()(const ResizedCrop& crop) const { resized_crop(image, crop.box); }
  void operator()(const Rotation& rotation) const { rotate(image, rotation.degrees); }
  void operator()(const ColorChange& change) const {
    for (const int step : change.order) {
      if (!change.any[static_cast<size_t>(step)]) continue;
      if (step == 0) adjust_brightness(image, change.brightness);
      if (step == 1) adjust_contrast(image, change.contrast);
      if (step == 2) adjust_saturation(image, change.saturation);
      if (step == 3) adjust_hue(image, change.hue);
    }
  }
  void operator()(const Fill& fill) const { fill_box(image, fill.box, mean); }
};

/// Appends a change to those that `move` already contains. It updates, along each axis, the source
/// of the new image's first pixel, the range of pixels that come from the image, and the range of
/// filled pixels. Pixels that were black or filled before are moved like others.
struct Compose {
  kernels::ImageMove& move;
  int32_t height, width;

  void operator()(const NoChange&) const {}
  void operator()(const Flip& flip) const {
    if (flip.vertical) {
      mirror(move.first_y, move.step_y, height, &kernels::PixelBox::top,
             &kernels::PixelBox::bottom);
    } else {
      mirror(move.first_x, move.step_x, width, &kernels::PixelBox::left, &kernels::PixelBox::right);
    }
  }
  void operator()(const Shift& s) const {
    const auto up = static_cast<int32_t>(s.up), left = static_cast<int32_t>(s.left);
    move.first_y += move.step_y * up;
    move.first_x += move.step_x * left;
    for (kernels::PixelBox* box : {&move.kept, &move.filled}) {
      *box = within({box->top - up, box->left - left, box->bottom - up, box->right - left});
    }
  }
  void operator()(const Fill& fill) const {
    const auto top = static_cast<int32_t>(fill.box.top), left = static_cast<int32_t>(fill.box.left);
    move.filled = within({top, left, top + static_cast<int32_t>(fill.box.height),
                          left + static_cast<int32_t>(fill.box.width)});
  }
  void operator()(const auto& /*change*/) const {
    TRAINYARD_CHECK(false, "an augmentation that is no move");
  }

 private:
  using Edge = int32_t kernels::PixelBox::*;
  void mirror(int32_t& first, int32_t& step, int32_t size, Edge begin, Edge end) const {
    first += step * (size - 1);
    step = -step;
    for (kernels::PixelBox* box : {&move.kept, &move.filled}) {
      const int32_t old_begin = box->*begin;
      box->*begin = size - box->*end;
      box->*end = size - old_begin;
    }
  }
  kernels::PixelBox within(const kernels::PixelBox& box) const {
    return {std::max(box.top, 0), std::max(box.left, 0), std::min(box.bottom, height),
            std::min(box.right, width)};
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
    std::visit(Apply{image, mean_}, std::visit(Draw{draws, height_, width_}, list_[place]));
  }
}

kernels::ImageMove Augmenter::draw_move(uint64_t seed, int64_t epoch, int64_t row) const {
  const auto height = static_cast<int32_t>(height_), width = static_cast<int32_t>(width_);
  kernels::ImageMove move;
  move.kept = {0, 0, height, width};
  for (size_t place = 0; place < list_.size(); ++place) {
    Draws draws(seed, place, epoch, row);
    std::visit(Compose{move, height, width},
               std::visit(Draw{draws, height_, width_}, list_[place]));
  }
  return move;
}

bool moves_alone(std::span<const Augmentation> list) {
  int cutouts = 0;
  for (const Augmentation& a : list) {
    const bool moves = std::holds_alternative<RandomHorizontalFlip>(a) ||
                       std::holds_alternative<RandomVerticalFlip>(a) ||
                       std::holds_alternative<RandomCrop>(a) || std::holds_alternative<Cutout>(a);
    if (!moves) return false;
    if (std::holds_alternative<Cutout>(a)) ++cutouts;
  }
  return cutouts <= 1;
}

}  // namespace trainyard
