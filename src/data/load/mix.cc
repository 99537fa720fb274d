#include "src/data/load/mix.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "src/base/check.h"
#include "src/base/philox.h"

namespace trainyard {
namespace {

/// Draws the numbers of a stream and step one after another.
class MixDraws {
 public:
  MixDraws(uint64_t seed, uint32_t stream, uint64_t step, uint64_t& next)
      : seed_(seed), stream_(stream), step_(step), next_(next) {}

  /// Returns a number in (0, 1).
  double uniform() { return (math::philox_u32(seed_, stream_, step_, next_++) + 0.5) * 0x1p-32; }
  /// Returns a normally distributed number, by the Box-Muller transform.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  int64_t below(int64_t count) {
    return std::min(static_cast<int64_t>(uniform() * static_cast<double>(count)), count - 1);
  }

 private:
  uint64_t seed_;
  uint32_t stream_;
  uint64_t step_;
  uint64_t& next_;
};

/// Returns the logarithm of a random number from Gamma(alpha, 1).
double draw_log_gamma(double alpha, MixDraws& draws) {
  if (alpha < 1) {
    const double factor = std::log(draws.uniform()) / alpha;
    return factor + draw_log_gamma(alpha + 1, draws);
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {  // rejection sampling that accepts more than 95 % of the tries
    const double x = draws.normal();
    const double u = draws.uniform();
    const double root = 1 + c * x, v = root * root * root;
    if (root > 0 && std::log(u) < x * x / 2 + d * (1 - v + std::log(v))) return std::log(d * v);
  }
}

}  // namespace

double draw_beta(double alpha, uint64_t seed, uint32_t stream, uint64_t step, uint64_t& next) {
  MixDraws draws(seed, stream, step, next);
  const double first = draw_log_gamma(alpha, draws);
  const double second = draw_log_gamma(alpha, draws);
  return 1 / (1 + std::exp(second - first));
}

MixBox cut_box(double share, int64_t x, int64_t y, int64_t height, int64_t width) {
  const double r = 0.5 * std::sqrt(1 - share);
  const auto half_width = static_cast<int64_t>(r * static_cast<double>(width));
  const auto half_height = static_cast<int64_t>(r * static_cast<double>(height));
  return {std::max<int64_t>(y - half_height, 0), std::max<int64_t>(x - half_width, 0),
          std::min(y + half_height, height), std::min(x + half_width, width)};
}

Mixer::Mixer(std::vector<Mixing> list, const Shape& image, int64_t classes)
    : list_(std::move(list)),
      channels_(image[0]),
      height_(image[1]),
      width_(image[2]),
      classes_(classes) {}

MixDraw Mixer::draw(uint64_t seed, int64_t step) const {
  constexpr uint32_t kStream = stream_of("mix");
  const auto at = static_cast<uint64_t>(step);
  uint64_t next = 0;
  MixDraws draws(seed, kStream, at, next);
  const int64_t which = draws.below(std::ssize(list_));
  const Mixing& mixing = list_[static_cast<size_t>(which)];
  const double alpha = std::visit([](const auto& m) { return m.alpha; }, mixing);
  MixDraw draw{std::holds_alternative<Cutmix>(mixing), draw_beta(alpha, seed, kStream, at, next)};
  if (!draw.cuts) return draw;
  const int64_t x = draws.below(width_), y = draws.below(height_);
  draw.box = cut_box(draw.share, x, y, height_, width_);
  return draw;
}

double Mixer::mix_images(const MixDraw& draw, std::span<float> images) const {
  const auto size = static_cast<size_t>(channels_ * height_ * width_);
  const size_t count = images.size() / size;
  // Row n needs the unmixed row n - 1, so rows are mixed from the last to the first. The first row
  // needs a copy of the unmixed last row.
  const std::vector<float> last(images.end() - static_cast<std::ptrdiff_t>(size), images.end());
  const auto share = static_cast<float>(draw.share), rest = static_cast<float>(1 - draw.share);
  const MixBox& box = draw.box;
  for (size_t n = count; n-- > 0;) {
    float* x = images.data() + n * size;
    const float* partner = n > 0 ? x - size : last.data();
    if (!draw.cuts) {
      for (size_t i = 0; i < size; ++i) x[i] = partner[i] * rest + x[i] * share;
      continue;
    }
    for (int64_t line = 0; line < channels_ * height_; ++line) {
      if (line % height_ < box.top || line % height_ >= box.bottom) continue;
      std::copy(partner + line * width_ + box.left, partner + line * width_ + box.right,
                x + line * width_ + box.left);
    }
  }
  if (!draw.cuts) return draw.share;
  const int64_t cut = (box.right - box.left) * (box.bottom - box.top);
  return 1 - static_cast<double>(cut) / static_cast<double>(height_ * width_);
}

std::vector<float> Mixer::mix_labels(double share, std::span<int32_t> labels) const {
  const auto classes = static_cast<size_t>(classes_);
  const std::vector<int32_t> own(labels.begin(), labels.end());
  std::vector<float> shares(own.size() * classes);
  for (size_t n = 0; n < own.size(); ++n) {
    const int32_t other = n > 0 ? own[n - 1] : own.back();
    shares[n * classes + static_cast<size_t>(own[n])] += static_cast<float>(share);
    shares[n * classes + static_cast<size_t>(other)] += static_cast<float>(1 - share);
    if (share < 0.5) labels[n] = other;
  }
  return shares;
}

}  // namespace trainyard
