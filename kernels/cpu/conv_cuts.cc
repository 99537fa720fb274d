#include "kernels/cpu/conv_cuts.h"

#include <algorithm>

namespace trainyard::kernels::cpu {
namespace {

constexpr int64_t kFlopsPerThread = 1'000'000;  // about 6 us
constexpr int64_t kBandRowsMin = 2;

/// Returns the number of bands per image; 1 means that images are not divided.
int64_t bands_of(const ConvDims& d, int threads) {
  return std::max<int64_t>(1, std::min(threads / d.x.N, d.y().H / kBandRowsMin));
}

/// Sets `cut` to the convolution from rows `x` to rows `y` of image `image`. Returns false if no
/// convolution with non-negative padding does that.
bool make_cut(const ConvDims& d, int64_t image, Range x, Range y, ConvCut& cut) {
  const Window& w = d.window;
  const ImageDims out = d.y();
  if (x.size() <= 0 || y.size() <= 0) return false;
  cut.dims = d;
  cut.dims.x.N = 1;
  cut.dims.x.H = x.size();
  const int64_t above = x.begin + w.pad_top - y.begin * w.stride_h;
  const int64_t below = (y.size() - 1) * w.stride_h + w.height() - x.size() - above;
  cut.dims.window.pad_top = above;
  cut.dims.window.pad_bottom = std::max<int64_t>(0, below);
  cut.x_offset = (image * d.x.H + x.begin) * d.x.W * d.x.C;
  cut.y_offset = (image * out.H + y.begin) * out.W * out.C;
  return above >= 0 && above < w.height() && below < w.height() && cut.dims.y().H == y.size();
}

/// `rows_of(y)` returns the rows of x and of y that the cut for a band of rows of y covers.
template <typename F>
std::vector<ConvCut> cut_rows(const ConvDims& d, int threads, const F& rows_of) {
  const int64_t bands = bands_of(d, threads);
  std::vector<ConvCut> cuts;
  for (int64_t image = 0; image < d.x.N && bands > 1; ++image) {
    for (int64_t band = 0; band < bands; ++band) {
      const auto [x, y] = rows_of(part_of(d.y().H, band, bands));
      if (!make_cut(d, image, x, y, cuts.emplace_back())) return {};
    }
  }
  return cuts;
}

}  // namespace

int threads_of(const ConvDims& d, const Team& team) {
  return static_cast<int>(std::clamp<int64_t>(d.flops() / kFlopsPerThread, 1, team.size()));
}

std::vector<ConvCut> cut_images(const ConvDims& d, int threads) {
  std::vector<ConvCut> cuts(static_cast<size_t>(std::min<int64_t>(threads, d.x.N)));
  const int64_t parts = std::ssize(cuts);
  for (int64_t i = 0; i < parts; ++i) {
    const Range images = part_of(d.x.N, i, parts);
    ConvCut& cut = cuts[static_cast<size_t>(i)];
    cut.dims = d;
    cut.dims.x.N = images.size();
    cut.x_offset = images.begin * d.x.C * d.x.pixels();
    cut.y_offset = images.begin * d.K * d.y().pixels();
  }
  return cuts;
}

std::vector<ConvCut> cut_rows_of_y(const ConvDims& d, int threads) {
  const Window& w = d.window;
  return cut_rows(d, threads, [&](Range y) {
    const int64_t first = y.begin * w.stride_h - w.pad_top;
    const int64_t last = (y.end - 1) * w.stride_h - w.pad_top + w.height();
    return std::pair(Range{std::max<int64_t>(0, first), std::min(d.x.H, last)}, y);
  });
}

std::vector<ConvCut> cut_rows_of_x(const ConvDims& d, int threads) {
  const Window& w = d.window;
  const int64_t P = d.y().H;
  // Bands of x begin where windows do, so that no band has a negative padding.
  const auto begin_of = [&](int64_t y) {
    if (y == 0) return int64_t{0};
    return y == P ? d.x.H : std::clamp<int64_t>(y * w.stride_h - w.pad_top, 0, d.x.H);
  };
  return cut_rows(d, threads, [&](Range y) {
    const Range x = {begin_of(y.begin), begin_of(y.end)};
    // Windows that begin up to `reach` output rows above the band still extend into it.
    const int64_t reach = (w.height() - 1) / w.stride_h;
    const int64_t last = (x.end - 1 + w.pad_top) / w.stride_h;
    return std::pair(x, Range{std::max<int64_t>(0, y.begin - reach), std::min(P, last + 1)});
  });
}

}  // namespace trainyard::kernels::cpu
