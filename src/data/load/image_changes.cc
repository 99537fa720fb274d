#include "src/data/load/image_changes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace trainyard {
namespace {

constexpr float kWhite = 255;  // the largest value of 8-bit pixels

/// Sets each pixel of the new image to pick(plane of the old image, y, x).
template <typename Pick>
void remap(const ImageView& image, Pick pick) {
  image.scratch.assign(image.pixels.begin(), image.pixels.end());
  for (int64_t c = 0; c < image.channels; ++c) {
    const float* from = image.scratch.data() + c * image.area();
    float* to = image.plane(c).data();
    for (int64_t y = 0; y < image.height; ++y) {
      for (int64_t x = 0; x < image.width; ++x) *to++ = pick(from, y, x);
    }
  }
}

/// Interpolates between the four pixels around (y, x). Pixel centers have integer coordinates, and
/// pixels outside of the image are black.
struct Bilinear {
  int64_t height, width;

  float at(const float* plane, int64_t y, int64_t x) const {
    const bool inside = y >= 0 && y < height && x >= 0 && x < width;
    return inside ? plane[y * width + x] : 0;
  }
  float operator()(const float* plane, double y, double x) const {
    const double y0 = std::floor(y), x0 = std::floor(x);
    const auto fy = static_cast<float>(y - y0), fx = static_cast<float>(x - x0);
    const auto iy = static_cast<int64_t>(y0), ix = static_cast<int64_t>(x0);
    const float top = at(plane, iy, ix) * (1 - fx) + at(plane, iy, ix + 1) * fx;
    const float bottom = at(plane, iy + 1, ix) * (1 - fx) + at(plane, iy + 1, ix + 1) * fx;
    return top * (1 - fy) + bottom * fy;
  }
};

/// Returns the luma of a pixel as in ITU-R BT.601.
float grey(float r, float g, float b) { return 0.2989f * r + 0.587f * g + 0.114f * b; }

float clamp_white(float x) { return std::clamp(x, 0.0f, kWhite); }

/// Shifts the hue of a pixel by `shift` of a full turn and keeps its value and saturation (A. R.
/// Smith, "Color gamut transform pairs", SIGGRAPH 1978).
void shift_hue(float& r, float& g, float& b, float shift) {
  const float top = std::max({r, g, b}), bottom = std::min({r, g, b});
  const float range = top - bottom;
  if (range == 0) return;
  float hue = top == r ? (g - b) / range : top == g ? 2 + (b - r) / range : 4 + (r - g) / range;
  hue = hue / 6 + shift;
  hue = (hue - std::floor(hue)) * 6;
  const int sector = static_cast<int>(hue) % 6;
  const float part = hue - std::floor(hue);
  const float falling = top - range * part, rising = top - range * (1 - part);
  const std::array<std::array<float, 3>, 6> colours = {{{top, rising, bottom},
                                                        {falling, top, bottom},
                                                        {bottom, top, rising},
                                                        {bottom, falling, top},
                                                        {rising, bottom, top},
                                                        {top, bottom, falling}}};
  r = colours[static_cast<size_t>(sector)][0];
  g = colours[static_cast<size_t>(sector)][1];
  b = colours[static_cast<size_t>(sector)][2];
}

}  // namespace

void flip_horizontally(const ImageView& image) {
  for (int64_t c = 0; c < image.channels; ++c) {
    float* row = image.plane(c).data();
    for (int64_t y = 0; y < image.height; ++y, row += image.width) {
      std::reverse(row, row + image.width);
    }
  }
}

void flip_vertically(const ImageView& image) {
  for (int64_t c = 0; c < image.channels; ++c) {
    float* plane = image.plane(c).data();
    for (int64_t y = 0; y < image.height / 2; ++y) {
      std::swap_ranges(plane + y * image.width, plane + (y + 1) * image.width,
                       plane + (image.height - 1 - y) * image.width);
    }
  }
}

void shift(const ImageView& image, int64_t up, int64_t left) {
  remap(image, [&](const float* from, int64_t y, int64_t x) {
    const int64_t v = y + up, u = x + left;
    const bool inside = v >= 0 && v < image.height && u >= 0 && u < image.width;
    return inside ? from[v * image.width + u] : 0.0f;
  });
}

void resized_crop(const ImageView& image, const Box& box) {
  const double scale_y = static_cast<double>(box.height) / static_cast<double>(image.height);
  const double scale_x = static_cast<double>(box.width) / static_cast<double>(image.width);
  // Coordinates are clamped to the box, so that pixels outside of it have no influence.
  const auto place = [](int64_t i, double scale, int64_t size) {
    return std::clamp((static_cast<double>(i) + 0.5) * scale - 0.5, 0.0,
                      static_cast<double>(size - 1));
  };
  const Bilinear sample{image.height, image.width};
  remap(image, [&](const float* from, int64_t y, int64_t x) {
    return sample(from, static_cast<double>(box.top) + place(y, scale_y, box.height),
                  static_cast<double>(box.left) + place(x, scale_x, box.width));
  });
}

void rotate(const ImageView& image, double degrees) {
  const double angle = degrees * std::numbers::pi / 180;
  const double cos = std::cos(angle), sin = std::sin(angle);
  const double middle_y = static_cast<double>(image.height - 1) / 2;
  const double middle_x = static_cast<double>(image.width - 1) / 2;
  const Bilinear sample{image.height, image.width};
  remap(image, [&](const float* from, int64_t y, int64_t x) {
    const double dy = static_cast<double>(y) - middle_y, dx = static_cast<double>(x) - middle_x;
    return sample(from, middle_y + dx * sin + dy * cos, middle_x + dx * cos - dy * sin);
  });
}

void fill_box(const ImageView& image, const Box& box, std::span<const float> colour) {
  const int64_t left = std::max<int64_t>(box.left, 0);
  const int64_t right = std::min(box.left + box.width, image.width);
  const int64_t bottom = std::min(box.top + box.height, image.height);
  for (int64_t c = 0; c < image.channels; ++c) {
    for (int64_t y = std::max<int64_t>(box.top, 0); y < bottom; ++y) {
      float* row = image.plane(c).data() + y * image.width;
      if (left < right) std::fill(row + left, row + right, colour[static_cast<size_t>(c)]);
    }
  }
}

void adjust_brightness(const ImageView& image, float factor) {
  for (float& x : image.pixels) x = clamp_white(x * factor);
}

void adjust_contrast(const ImageView& image, float factor) {
  double sum = 0;
  const auto area = static_cast<size_t>(image.area());
  if (image.channels == 3) {
    for (size_t i = 0; i < area; ++i) {
      sum += static_cast<double>(grey(image.plane(0)[i], image.plane(1)[i], image.plane(2)[i]));
    }
    sum /= static_cast<double>(area);
  } else {
    for (const float x : image.pixels) sum += static_cast<double>(x);
    sum /= static_cast<double>(image.pixels.size());
  }
  const auto mean = static_cast<float>(sum);
  for (float& x : image.pixels) x = clamp_white(factor * x + (1 - factor) * mean);
}

void adjust_saturation(const ImageView& image, float factor) {
  const auto area = static_cast<size_t>(image.area());
  for (size_t i = 0; i < area; ++i) {
    const float y = grey(image.plane(0)[i], image.plane(1)[i], image.plane(2)[i]);
    for (int64_t c = 0; c < 3; ++c) {
      float& x = image.plane(c)[i];
      x = clamp_white(factor * x + (1 - factor) * y);
    }
  }
}

void adjust_hue(const ImageView& image, float shift) {
  const auto area = static_cast<size_t>(image.area());
  for (size_t i = 0; i < area; ++i) {
    shift_hue(image.plane(0)[i], image.plane(1)[i], image.plane(2)[i], shift);
  }
}

}  // namespace trainyard
