#include "src/data/image/image_file.h"

#include <algorithm>
#include <array>

#include "src/data/image/image_codec.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

constexpr int kOrientationTag = 0x0112;
constexpr unsigned kShortType = 3;

/// Files that are often named .jpg or .png, with the bytes that they have at an offset.
struct OtherKind {
  size_t at;
  std::string_view magic;
  std::string_view what;
};
constexpr std::string_view kImagePage = "an HTML page, as servers send for a missing image";
constexpr auto kOtherKinds = std::to_array<OtherKind>({
    {0, "<!DOCTYPE", kImagePage},
    {0, "<!doctype", kImagePage},
    {0, "<html", kImagePage},
    {0, "<HTML", kImagePage},
    {0, "<?xml", "an XML document, such as SVG"},
    {0, "<svg", "an SVG drawing"},
    {0, "GIF8", "a GIF image"},
    {0, "BM", "a BMP image"},
    {8, "WEBP", "a WebP image"},
    {0, std::string_view("II*\0", 4), "a TIFF image"},
    {0, std::string_view("MM\0*", 4), "a TIFF image"},
    {4, "ftypheic", "a HEIC image"},
    {4, "ftypmif1", "a HEIC image"},
    {4, "ftypavif", "an AVIF image"},
    {0, "%PDF", "a PDF document"},
    {0, "version https://git-lfs", "a pointer of Git LFS (run git lfs pull)"},
});

/// Reads the numbers of a TIFF structure; bytes beyond its end are 0.
struct TiffBytes {
  std::string_view bytes;
  bool big_endian = false;

  unsigned byte(size_t at) const {
    return at < bytes.size() ? static_cast<unsigned char>(bytes[at]) : 0;
  }
  unsigned u16(size_t at) const {
    return big_endian ? byte(at) << 8 | byte(at + 1) : byte(at + 1) << 8 | byte(at);
  }
  size_t u32(size_t at) const {
    const size_t first = u16(at);
    const size_t second = u16(at + 2);
    return big_endian ? first << 16 | second : second << 16 | first;
  }
};

/// Maps pixels of the image turned upright to pixels of the file. `height` and `width` are the
/// file's.
struct Turn {
  int32_t orientation;
  int64_t height;
  int64_t width;

  bool sideways() const { return orientation >= 5; }
  int64_t source(int64_t y, int64_t x) const {  // index in the file of the upright pixel (y, x)
    int64_t row = sideways() ? x : y;
    int64_t column = sideways() ? y : x;
    // The orientation tells at which sides of the upright image the file's first row and first
    // column are (EXIF 2.32, 4.6.4).
    if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) {
      row = height - 1 - row;
    }
    if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) {
      column = width - 1 - column;
    }
    return row * width + column;
  }
};

template <typename T>
Pixels<T> upright(Pixels<T> pixels, int32_t orientation) {
  if (orientation == 1) return pixels;
  const Turn turn{orientation, pixels.height, pixels.width};
  Pixels<T> out{turn.sideways() ? pixels.width : pixels.height,
                turn.sideways() ? pixels.height : pixels.width,
                pixels.channels,
                {}};
  out.values.reserve(pixels.values.size());
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x) {
      const T* p = pixels.values.data() + turn.source(y, x) * pixels.channels;
      out.values.insert(out.values.end(), p, p + pixels.channels);
    }
  }
  return out;
}

ImagePixels with_channels(ImagePixels pixels, int64_t channels) {
  if (pixels.channels == channels) return pixels;
  ImagePixels out{pixels.height, pixels.width, channels, {}};
  out.values.reserve(static_cast<size_t>(pixels.height * pixels.width * channels));
  if (channels == 3) {
    for (const uint8_t grey : pixels.values) out.values.insert(out.values.end(), 3, grey);
    return out;
  }
  // Luma of ITU-R BT.601 with weights scaled by 2^16, rounded to nearest.
  for (size_t i = 0; i < pixels.values.size(); i += 3) {
    const unsigned luma =
        19595u * pixels.values[i] + 38470u * pixels.values[i + 1] + 7471u * pixels.values[i + 2];
    out.values.push_back(static_cast<uint8_t>((luma + 0x8000u) >> 16));
  }
  return out;
}

/// Says what a file is that is neither JPEG nor PNG, by its first bytes.
Error unknown_format(std::string_view bytes, const std::string& what) {
  if (bytes.empty()) return dataset_error(what, "the file is empty");
  for (const OtherKind& kind : kOtherKinds) {
    if (bytes.substr(std::min(kind.at, bytes.size())).starts_with(kind.magic)) {
      return dataset_error(
          what, "its content is " + std::string(kind.what) + ", expected a JPEG or PNG image");
    }
  }
  return dataset_error(what, "its content is neither a JPEG nor a PNG image");
}

}  // namespace

int32_t exif_orientation(std::string_view tiff) {
  const bool big_endian = tiff.starts_with(std::string_view("MM\0*", 4));
  if (!big_endian && !tiff.starts_with(std::string_view("II*\0", 4))) return 1;
  const TiffBytes bytes{tiff, big_endian};
  const size_t directory = bytes.u32(4);
  const size_t count = bytes.u16(directory);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (entry + 12 > tiff.size()) break;
    if (bytes.u16(entry) != kOrientationTag) continue;
    const unsigned value = bytes.u16(entry + 8);
    const bool known = bytes.u16(entry + 2) == kShortType && value >= 1 && value <= 8;
    return known ? static_cast<int32_t>(value) : 1;
  }
  return 1;
}

Status check_file_holds(size_t needed, size_t most, int64_t height, int64_t width,
                        size_t file_bytes, const std::string& what) {
  if (needed <= most) return {};
  return dataset_error(what, "an image of " + std::to_string(height) + " x " +
                                 std::to_string(width) + " pixels cannot be in " +
                                 std::to_string(file_bytes) + " bytes: the image is cut short");
}

Status check_image_size(int64_t height, int64_t width, const std::string& what) {
  if (height >= 1 && width >= 1 && height <= kImagePixelsMax / width) return {};
  return dataset_error(what, "an image of " + std::to_string(height) + " x " +
                                 std::to_string(width) + " pixels, expected 1 to " +
                                 std::to_string(kImagePixelsMax));
}

Result<ImageInfo> read_image_info(std::string_view bytes, const std::string& what) {
  if (!is_jpeg(bytes) && !is_png(bytes)) return unknown_format(bytes, what);
  ASSIGN_OR_RETURN(ImageInfo info,
                   is_jpeg(bytes) ? read_jpeg_info(bytes, what) : read_png_info(bytes, what));
  if (info.orientation >= 5) std::swap(info.height, info.width);
  return info;
}

Result<ImagePixels> decode_image(std::string_view bytes, int64_t channels,
                                 const std::string& what) {
  ASSIGN_OR_RETURN(const ImageInfo info, read_image_info(bytes, what));
  ASSIGN_OR_RETURN(ImagePixels pixels,
                   is_jpeg(bytes) ? decode_jpeg(bytes, what) : decode_png(bytes, what));
  return with_channels(upright(std::move(pixels), info.orientation), channels);
}

Result<DeepPixels> decode_deep_image(std::string_view bytes, const std::string& what) {
  ASSIGN_OR_RETURN(const ImageInfo info, read_image_info(bytes, what));
  if (info.deep && !info.colour) {
    ASSIGN_OR_RETURN(DeepPixels pixels, decode_deep_png(bytes, what));
    return upright(std::move(pixels), info.orientation);
  }
  ASSIGN_OR_RETURN(const ImagePixels pixels, decode_image(bytes, 1, what));
  DeepPixels deep{pixels.height, pixels.width, 1, {}};
  deep.values.reserve(pixels.values.size());
  for (const uint8_t value : pixels.values)
    deep.values.push_back(static_cast<uint16_t>(value * 257));
  return deep;
}

}  // namespace trainyard
