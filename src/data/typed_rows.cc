#include "src/data/typed_rows.h"

namespace trainyard {

Partition TypedRows::view() const {
  Partition p = RawRows::view();
  p.image_sums = image_sums;
  p.target_class = target_class;
  p.target_numeric = target_numeric;
  p.group = group;
  p.time = time;
  p.counted = counted;
  p.starts = starts;
  return p;
}

void copy_image(const Partition& rows, int64_t row, std::span<float> out) {
  const size_t first = static_cast<size_t>(row) * out.size();
  if (!rows.image_u8.empty()) {
    std::ranges::copy(rows.image_u8.subspan(first, out.size()), out.begin());
  } else {
    std::ranges::copy(rows.image_f32.subspan(first, out.size()), out.begin());
  }
}

void widen_ranges(std::span<const uint8_t> pixels, std::vector<ByteRange>& ranges) {
  const size_t size = pixels.size() / ranges.size();
  for (size_t c = 0; c < ranges.size(); ++c) {
    const auto [low, high] = std::ranges::minmax(pixels.subspan(c * size, size));
    ranges[c].widen({low, high});
  }
}

std::vector<int64_t> sum_images(std::span<const uint8_t> pixels, int64_t rows, const Shape& image) {
  const int64_t channels = image[0];
  const int64_t size = image[1] * image[2];
  std::vector<int64_t> sums;
  sums.reserve(static_cast<size_t>(rows * channels * 2));
  const uint8_t* x = pixels.data();
  for (int64_t i = 0; i < rows * channels; ++i) {
    int64_t sum = 0;
    int64_t squares = 0;
    while (x != pixels.data() + (i + 1) * size) {
      const int64_t value = *x++;
      sum += value;
      squares += value * value;
    }
    sums.push_back(sum);
    sums.push_back(squares);
  }
  return sums;
}

}  // namespace trainyard
