#include "src/data/image/image_resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace trainyard {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"none", "stretch", "crop", "pad"};

/// A rectangle of the image, in pixels. Its edges may be inside of pixels.
struct Window {
  double top = 0, left = 0, height = 0, width = 0;
};

/// The weights of the source pixels first, first + 1, ... for one target pixel along one axis.
struct Tap {
  int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Tap> taps_of(double begin, double length, int64_t source, int64_t target) {
  const double scale = length / static_cast<double>(target);
  const double reach = std::max(scale, 1.0);  // half the triangle's base
  std::vector<Tap> taps;
  for (int64_t i = 0; i < target; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    Tap tap;
    tap.first = std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - reach + 0.5)));
    const int64_t end = std::min(source, static_cast<int64_t>(std::floor(centre + reach + 0.5)));
    std::vector<double> weights;
    double sum = 0;
    for (int64_t x = tap.first; x < end; ++x) {
      const double distance = std::abs(static_cast<double>(x) + 0.5 - centre) / reach;
      sum += weights.emplace_back(std::max(0.0, 1 - distance));
    }
    for (const double w : weights) tap.weights.push_back(static_cast<float>(w / sum));
    taps.push_back(std::move(tap));
  }
  return taps;
}

/// Resamples a rectangle of the image to [height, width, C].
template <typename T>
Pixels<T> resample(const Pixels<T>& in, const Window& box, int64_t height, int64_t width) {
  constexpr auto kWhite = static_cast<float>(std::numeric_limits<T>::max());
  const int64_t channels = in.channels;
  const std::vector<Tap> columns = taps_of(box.left, box.width, in.width, width);
  const std::vector<Tap> rows = taps_of(box.top, box.height, in.height, height);
  // Only the source rows that have a weight are resampled along x, each once.
  const int64_t row_first = rows.front().first;
  const int64_t row_end = rows.back().first + std::ssize(rows.back().weights);
  std::vector<float> narrow(static_cast<size_t>((row_end - row_first) * width * channels));
  float* to = narrow.data();
  for (int64_t y = row_first; y < row_end; ++y) {
    const T* line = in.values.data() + y * in.width * channels;
    for (const Tap& tap : columns) {
      for (int64_t c = 0; c < channels; ++c) {
        const T* p = line + tap.first * channels + c;
        float sum = 0;
        for (const float w : tap.weights) {
          sum += w * static_cast<float>(*p);
          p += channels;
        }
        *to++ = sum;
      }
    }
  }
  Pixels<T> out{height, width, channels, {}};
  out.values.reserve(static_cast<size_t>(height * width * channels));
  const int64_t row_values = width * channels;
  std::vector<float> line(static_cast<size_t>(row_values));
  for (const Tap& tap : rows) {
    std::fill(line.begin(), line.end(), 0.0f);
    const float* from = narrow.data() + (tap.first - row_first) * row_values;
    for (const float w : tap.weights) {
      for (int64_t i = 0; i < row_values; ++i) line[static_cast<size_t>(i)] += w * from[i];
      from += row_values;
    }
    for (const float value : line) {
      out.values.push_back(static_cast<T>(std::clamp(value + 0.5f, 0.0f, kWhite)));
    }
  }
  return out;
}

/// Converts interleaved pixels to planes, with the top left corner at (top, left) of the target.
template <typename T>
void copy_planes(const Pixels<T>& pixels, const Shape& image, int64_t top, int64_t left,
                 std::span<T> out) {
  const int64_t channels = image[0];
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < pixels.height; ++y) {
      const T* from = pixels.values.data() + y * pixels.width * channels + c;
      T* to = out.data() + (c * image[1] + top + y) * image[2] + left;
      for (int64_t x = 0; x < pixels.width; ++x) to[x] = from[x * channels];
    }
  }
}

/// Returns the largest centered rectangle with the target's aspect ratio.
template <typename T>
Window middle_box(const Pixels<T>& in, int64_t height, int64_t width) {
  const auto h = static_cast<double>(in.height);
  const auto w = static_cast<double>(in.width);
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  Window box{0, 0, h, w};
  if (w / h >= ratio) {
    box.width = h * ratio;
    box.left = (w - box.width) / 2;
  } else {
    box.height = w / ratio;
    box.top = (h - box.height) / 2;
  }
  return box;
}

int64_t scaled(int64_t side, double scale, int64_t max) {
  return std::clamp<int64_t>(std::llround(static_cast<double>(side) * scale), 1, max);
}

}  // namespace

std::string_view name_of(ResizeMode mode) { return kNames[static_cast<size_t>(mode)]; }

std::optional<ResizeMode> find_resize(std::string_view name) {
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<ResizeMode>(it - kNames.begin());
}

template <typename T>
void place_image(const Pixels<T>& in, const Shape& image, ResizeMode mode,
                 std::span<std::type_identity_t<T>> out) {
  const int64_t height = image[1];
  const int64_t width = image[2];
  TRAINYARD_CHECK(in.channels == image[0] && std::ssize(out) == image.elements(),
                  "room for the image");
  if (in.height == height && in.width == width) return copy_planes(in, image, 0, 0, out);
  TRAINYARD_CHECK(mode != ResizeMode::kNone, "an image of the size that is asked for");
  const Window whole{0, 0, static_cast<double>(in.height), static_cast<double>(in.width)};
  if (mode == ResizeMode::kStretch) {
    return copy_planes(resample(in, whole, height, width), image, 0, 0, out);
  }
  if (mode == ResizeMode::kCrop) {
    return copy_planes(resample(in, middle_box(in, height, width), height, width), image, 0, 0,
                       out);
  }
  const double scale = std::min(static_cast<double>(height) / static_cast<double>(in.height),
                                static_cast<double>(width) / static_cast<double>(in.width));
  const int64_t h = scaled(in.height, scale, height);
  const int64_t w = scaled(in.width, scale, width);
  std::fill(out.begin(), out.end(), T{0});
  copy_planes(h == in.height && w == in.width ? in : resample(in, whole, h, w), image,
              (height - h) / 2, (width - w) / 2, out);
}

template void place_image(const ImagePixels&, const Shape&, ResizeMode, std::span<uint8_t>);
template void place_image(const DeepPixels&, const Shape&, ResizeMode, std::span<uint16_t>);

}  // namespace trainyard
