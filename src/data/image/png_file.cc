// Decodes PNG with libpng. On an error it calls longjmp, which skips destructors. So the functions
// that call it have no local objects with destructors; their callers own all resources.
#include <png.h>

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "src/data/image/image_codec.h"
#include "src/data/limits.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr png_alloc_size_t kChunkBytesMax = 8 << 20;  // per chunk of text, profile or EXIF
constexpr png_uint_32 kChunksMax = 256;
constexpr size_t kDeflateRatioMax = 1032;  // a match of 258 bytes takes at least 2 bits

struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string_view rest;
  std::jmp_buf jump{};
  char message[128]{};

  PngReader() = default;
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void leave(png_structp png, png_const_charp message) {
  PngReader& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(reader.message, sizeof reader.message, "%s", message);
  std::longjmp(reader.jump, 1);
}
void let_pass(png_structp, png_const_charp) {}
void take_bytes(png_structp png, png_bytep out, size_t count) {
  std::string_view& rest = *static_cast<std::string_view*>(png_get_io_ptr(png));
  if (count > rest.size()) leave(png, "the image is cut short");
  std::memcpy(out, rest.data(), count);
  rest.remove_prefix(count);
}

/// Returns false and sets reader.message after an error of the library. So do the functions below.
bool read_header(PngReader& reader, std::string_view bytes) {
  if (setjmp(reader.jump) != 0) return false;
  reader.rest = bytes;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, leave, let_pass);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) {
    std::snprintf(reader.message, sizeof reader.message, "libpng cannot start");
    return false;
  }
  png_set_chunk_malloc_max(reader.png, kChunkBytesMax);
  png_set_chunk_cache_max(reader.png, kChunksMax);
  png_set_user_limits(reader.png, static_cast<png_uint_32>(kImagePixelsMax),
                      static_cast<png_uint_32>(kImagePixelsMax));
  png_set_read_fn(reader.png, &reader.rest, take_bytes);
  png_read_info(reader.png, reader.info);
  return true;
}

/// Sets the transformations to samples of 8 bits, or if `deep` of 16 bits in this machine's byte
/// order, which only files with such samples have.
bool start(PngReader& reader, bool deep) {
  if (setjmp(reader.jump) != 0) return false;
  if (!deep) {
    png_set_strip_16(reader.png);
  } else if constexpr (std::endian::native == std::endian::little) {
    png_set_swap(reader.png);
  }
  png_set_palette_to_rgb(reader.png);
  png_set_expand_gray_1_2_4_to_8(reader.png);
  png_set_strip_alpha(reader.png);
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  return true;
}

bool read_rows(PngReader& reader, png_bytepp rows) {
  if (setjmp(reader.jump) != 0) return false;
  png_read_image(reader.png, rows);
  png_read_end(reader.png, nullptr);  // reads the remaining chunks and checks their checksums
  return true;
}

Error refusal(const PngReader& reader, const std::string& what) {
  return dataset_error(what, std::string("the PNG image cannot be read: ") + reader.message);
}

/// Returns true if the palette has a color that is not gray, or, without a palette, if the type has
/// color.
bool has_colour(const PngReader& reader) {
  if (png_get_color_type(reader.png, reader.info) != PNG_COLOR_TYPE_PALETTE) {
    return (png_get_color_type(reader.png, reader.info) & PNG_COLOR_MASK_COLOR) != 0;
  }
  png_colorp palette = nullptr;
  int count = 0;
  png_get_PLTE(reader.png, reader.info, &palette, &count);
  return std::any_of(palette, palette + count,
                     [](png_color c) { return c.red != c.green || c.green != c.blue; });
}

/// Refuses sizes that are out of range, and those whose pixels cannot be in a file of so many
/// bytes. 71 bytes that claim 8000 x 8000 pixels would otherwise cost 0.3 s before they end.
Status check_size(const PngReader& reader, size_t file_bytes, const std::string& what) {
  const int64_t height = png_get_image_height(reader.png, reader.info);
  const int64_t width = png_get_image_width(reader.png, reader.info);
  if (Status s = check_image_size(height, width, what); !s.ok()) return s;
  const auto bits = static_cast<size_t>(png_get_bit_depth(reader.png, reader.info) *
                                        png_get_channels(reader.png, reader.info));
  const size_t bytes = static_cast<size_t>(height * width) * bits / 8;
  return check_file_holds(bytes, file_bytes * kDeflateRatioMax, height, width, file_bytes, what);
}

template <typename T>
Result<Pixels<T>> decode(std::string_view bytes, const std::string& what) {
  PngReader reader;
  if (!read_header(reader, bytes)) return refusal(reader, what);
  if (Status s = check_size(reader, bytes.size(), what); !s.ok()) return std::move(s).error();
  Pixels<T> pixels;
  pixels.height = png_get_image_height(reader.png, reader.info);
  pixels.width = png_get_image_width(reader.png, reader.info);
  if (!start(reader, sizeof(T) == 2)) return refusal(reader, what);
  pixels.channels = png_get_channels(reader.png, reader.info);
  const size_t row_bytes = png_get_rowbytes(reader.png, reader.info);
  const auto row_values = static_cast<size_t>(pixels.width * pixels.channels);
  TRAINYARD_CHECK(
      (pixels.channels == 1 || pixels.channels == 3) && row_bytes == row_values * sizeof(T),
      "libpng gives rows of samples");
  pixels.values.resize(row_values * static_cast<size_t>(pixels.height));
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < pixels.height; ++y) {
    rows.push_back(
        reinterpret_cast<png_bytep>(pixels.values.data() + row_values * static_cast<size_t>(y)));
  }
  if (!read_rows(reader, rows.data())) return refusal(reader, what);
  return pixels;
}

}  // namespace

bool is_png(std::string_view bytes) { return bytes.starts_with(kSignature); }

Result<ImageInfo> read_png_info(std::string_view bytes, const std::string& what) {
  PngReader reader;
  if (!read_header(reader, bytes)) return refusal(reader, what);
  if (Status s = check_size(reader, bytes.size(), what); !s.ok()) return std::move(s).error();
  ImageInfo info;
  info.height = png_get_image_height(reader.png, reader.info);
  info.width = png_get_image_width(reader.png, reader.info);
  info.colour = has_colour(reader);
  info.deep = png_get_bit_depth(reader.png, reader.info) == 16;
  png_uint_32 exif_bytes = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(reader.png, reader.info, &exif_bytes, &exif) != 0) {
    info.orientation = exif_orientation({reinterpret_cast<const char*>(exif), exif_bytes});
  }
  return info;
}

Result<ImagePixels> decode_png(std::string_view bytes, const std::string& what) {
  return decode<uint8_t>(bytes, what);
}

Result<DeepPixels> decode_deep_png(std::string_view bytes, const std::string& what) {
  return decode<uint16_t>(bytes, what);
}

}  // namespace trainyard
