#include "src/data/load/contact_sheet.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "src/base/check.h"
#include "src/base/text.h"
#include "src/data/typed_rows.h"

namespace trainyard {
namespace {

constexpr int64_t kMargin = 4;    // pixels between images
constexpr int64_t kSideMin = 96;  // smaller images are enlarged to about so many pixels
constexpr int64_t kImagesMax = 256, kVersionsMax = 64;
constexpr int64_t kPixelsMax = int64_t{64} << 20;

Status check(const DatasetSchema& schema, const SheetOptions& options) {
  if (schema.kind != DatasetSchema::Kind::kImage) {
    return make_error(ErrorCode::kFailedPrecondition, "PREVIEW_UNSUPPORTED",
                      "dataset: has no images to show");
  }
  const auto range = [](const char* field, int64_t value, int64_t low, int64_t high) -> Status {
    if (value >= low && value <= high) return {};
    return field_error("FIELD_OUT_OF_RANGE", field,
                       std::to_string(value) + ", expected " + std::to_string(low) + " to " +
                           std::to_string(high));
  };
  if (Status s = range("images", options.images, 1, kImagesMax); !s.ok()) return s;
  return range("versions", options.versions, 0, kVersionsMax);
}

std::string label_of(const DatasetSchema& schema, const Partition& rows, int64_t row) {
  const auto at = static_cast<size_t>(row);
  if (!rows.target_class.empty()) {
    return schema.target.classes[static_cast<size_t>(rows.target_class[at])];
  }
  if (rows.target_numeric.empty()) return "";
  return short_number(static_cast<double>(rows.target_numeric[at]) + schema.target.offset);
}

/// Paints images at their places on a sheet.
class Painter {
 public:
  Painter(Sheet& sheet, const Shape& image, bool bytes, int64_t scale)
      : sheet_(sheet), image_(image), bytes_(bytes), scale_(scale) {}

  void paint(std::span<const float> pixels, int64_t line, int64_t column) {
    const int64_t height = image_[1], width = image_[2];
    const auto [low, high] = std::ranges::minmax(pixels);
    const float offset = bytes_ ? 0 : low;
    const float factor = bytes_ ? 1 : high > low ? 255 / (high - low) : 0;
    const int64_t top = kMargin + line * (height * scale_ + kMargin);
    const int64_t left = kMargin + column * (width * scale_ + kMargin);
    for (int64_t y = 0; y < height * scale_; ++y) {
      uint8_t* to = &sheet_.pixels[static_cast<size_t>(((top + y) * sheet_.width + left) * 3)];
      for (int64_t x = 0; x < width * scale_; ++x) {
        for (int64_t c = 0; c < 3; ++c) {
          const int64_t channel = image_[0] == 3 ? c : 0;
          const int64_t from = (channel * height + y / scale_) * width + x / scale_;
          const float value = (pixels[static_cast<size_t>(from)] - offset) * factor;
          *to++ = static_cast<uint8_t>(std::lround(std::clamp(value, 0.0f, 255.0f)));
        }
      }
    }
  }

 private:
  Sheet& sheet_;
  const Shape& image_;
  bool bytes_;
  int64_t scale_;
};

}  // namespace

Result<Sheet> make_sheet(const Dataset& data, const Augmenter& augmenter, const Mixer& mixer,
                         const SheetOptions& options) {
  const DatasetSchema& schema = data.schema();
  if (Status s = check(schema, options); !s.ok()) return std::move(s).error();
  const Partition& rows = data.train();
  const int64_t count = std::min(options.images, rows.rows);
  const int64_t columns = 1 + (augmenter.empty() && mixer.empty() ? 0 : options.versions);
  const Shape& image = schema.image;
  const int64_t scale = std::max<int64_t>(1, kSideMin / std::max(image[1], image[2]));
  Sheet sheet;
  sheet.width = kMargin + columns * (image[2] * scale + kMargin);
  sheet.height = kMargin + count * (image[1] * scale + kMargin);
  if (sheet.width * sheet.height > kPixelsMax) {
    return make_error(ErrorCode::kResourceExhausted, "PREVIEW_TOO_LARGE",
                      "the sheet would have " + std::to_string(sheet.width) + " x " +
                          std::to_string(sheet.height) + " pixels; select fewer images");
  }
  sheet.pixels.assign(static_cast<size_t>(sheet.width * sheet.height * 3), 255);
  Painter painter(sheet, image, schema.image_dtype == DType::kU8, scale);
  const auto size = static_cast<size_t>(image.elements());
  std::vector<float> originals(static_cast<size_t>(count) * size), scratch;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i * rows.rows / count;
    sheet.lines.push_back({row, label_of(schema, rows, row)});
    const auto original = std::span(originals).subspan(static_cast<size_t>(i) * size, size);
    copy_image(rows, row, original);
    painter.paint(original, i, 0);
  }
  for (int64_t k = 1; k < columns; ++k) {
    const int64_t epoch = options.epoch + k - 1;
    std::vector<float> versions = originals;
    const auto version = [&](int64_t i) {
      return std::span(versions).subspan(static_cast<size_t>(i) * size, size);
    };
    for (int64_t i = 0; i < count; ++i) {
      augmenter.apply(version(i), options.seed, epoch, sheet.lines[static_cast<size_t>(i)].row,
                      scratch);
    }
    if (!mixer.empty()) mixer.mix_images(mixer.draw(options.seed, epoch), versions);
    for (int64_t i = 0; i < count; ++i) painter.paint(version(i), i, k);
  }
  return sheet;
}

std::string encode_png(const Sheet& sheet) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(sheet.width);
  image.height = static_cast<png_uint_32>(sheet.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  const bool done =
      png_image_write_to_memory(&image, bytes.data(), &size, 0, sheet.pixels.data(), 0, nullptr);
  TRAINYARD_CHECK(done, std::string("libpng: ") + image.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace trainyard
