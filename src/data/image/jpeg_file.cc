// Decodes JPEG with libjpeg-turbo. On an error it calls longjmp, which skips destructors. So the
// functions that call it have no local objects with destructors; their callers own all resources.
#include <csetjmp>
#include <cstdio>
#include <cstring>
// jpeglib.h needs size_t and FILE before it.
#include <jerror.h>
#include <jpeglib.h>

#include "src/data/image/image_codec.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

// Limit of scans. Each scan of a progressive image processes all pixels, and a small malicious file
// may have very many.
constexpr int kScansMax = 500;
constexpr unsigned kMarkerBytesMax = 0xffff;
// Each block of 8 x 8 samples has at least one bit by Huffman's coding. The rare arithmetic coding
// can take less for images of one color; a 64th is enough for those that are not made to be long.
constexpr size_t kPixelsPerByteMax = size_t{64} * 8;
constexpr size_t kArithmeticPixelsPerByteMax = 64 * kPixelsPerByteMax;
constexpr std::string_view kExif{"Exif\0\0", 6};

struct JpegReader {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf jump{};
  char message[JMSG_LENGTH_MAX]{};
  bool created = false;

  JpegReader() = default;
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() {
    if (created) jpeg_destroy_decompress(&info);
  }
};

JpegReader& reader_of(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }

[[noreturn]] void leave(j_common_ptr info) {
  JpegReader& reader = reader_of(info);
  reader.errors.format_message(info, reader.message);
  std::longjmp(reader.jump, 1);
}
[[noreturn]] void leave_with(j_decompress_ptr info, const char* message) {
  JpegReader& reader = reader_of(reinterpret_cast<j_common_ptr>(info));
  std::snprintf(reader.message, sizeof reader.message, "%s", message);
  std::longjmp(reader.jump, 1);
}

/// The library repairs damage and warns. Warnings that do not affect the pixels are accepted;
/// everything else is refused, so that no job trains on half-gray images.
void judge_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_TOO_MUCH_DATA:
      return;
    default:
      leave(info);
  }
}

void ignore_source(j_decompress_ptr) {}
boolean refuse_end(j_decompress_ptr info) { leave_with(info, "the image is cut short"); }
void skip_input(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<size_t>(count) > info->src->bytes_in_buffer) refuse_end(info);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<size_t>(count);
}
void bound_scans(j_common_ptr info) {
  const auto image = reinterpret_cast<j_decompress_ptr>(info);
  if (image->input_scan_number > kScansMax) leave_with(image, "more than 500 scans");
}

/// Returns false and sets reader.message after an error of the library. So do the functions below.
bool read_header(JpegReader& reader, std::string_view bytes) {
  reader.info.err = jpeg_std_error(&reader.errors);
  reader.errors.error_exit = leave;
  reader.errors.emit_message = judge_message;
  reader.info.client_data = &reader;
  if (setjmp(reader.jump) != 0) return false;
  jpeg_create_decompress(&reader.info);
  reader.created = true;
  reader.source.init_source = ignore_source;
  reader.source.fill_input_buffer = refuse_end;
  reader.source.skip_input_data = skip_input;
  reader.source.resync_to_restart = jpeg_resync_to_restart;
  reader.source.term_source = ignore_source;
  reader.source.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  reader.source.bytes_in_buffer = bytes.size();
  reader.info.src = &reader.source;
  reader.progress.progress_monitor = bound_scans;
  reader.info.progress = &reader.progress;
  jpeg_save_markers(&reader.info, JPEG_APP0 + 1, kMarkerBytesMax);
  jpeg_read_header(&reader.info, TRUE);
  return true;
}

/// Starts decompression, which sets the output sizes in reader.info.
bool start(JpegReader& reader) {
  if (setjmp(reader.jump) != 0) return false;
  reader.info.out_color_space = reader.info.num_components == 1   ? JCS_GRAYSCALE
                                : reader.info.num_components == 3 ? JCS_RGB
                                                                  : JCS_CMYK;
  jpeg_start_decompress(&reader.info);
  return true;
}
/// `out` must have space for output_height rows of output_width * output_components bytes.
bool read_rows(JpegReader& reader, uint8_t* out) {
  if (setjmp(reader.jump) != 0) return false;
  const size_t row_bytes =
      size_t{reader.info.output_width} * static_cast<size_t>(reader.info.output_components);
  while (reader.info.output_scanline < reader.info.output_height) {
    JSAMPROW row = out + row_bytes * reader.info.output_scanline;
    jpeg_read_scanlines(&reader.info, &row, 1);
  }
  jpeg_finish_decompress(&reader.info);  // reads up to the end-of-image marker
  return true;
}

Error refusal(const JpegReader& reader, const std::string& what) {
  return dataset_error(what, std::string("the JPEG image cannot be read: ") + reader.message);
}

Status check_header(const JpegReader& reader, size_t file_bytes, const std::string& what) {
  const int components = reader.info.num_components;
  if (components != 1 && components != 3 && components != 4) {
    return dataset_error(what, "a JPEG image of " + std::to_string(components) +
                                   " components, expected 1 (gray), 3 (color) or 4 (CMYK)");
  }
  const int64_t height = reader.info.image_height;
  const int64_t width = reader.info.image_width;
  if (Status s = check_image_size(height, width, what); !s.ok()) return s;
  const bool arithmetic = reader.info.arith_code != FALSE;
  return check_file_holds(
      static_cast<size_t>(height * width),
      file_bytes * (arithmetic ? kArithmeticPixelsPerByteMax : kPixelsPerByteMax), height, width,
      file_bytes, what);
}

uint8_t times(uint8_t a, uint8_t b) {  // a * b / 255, rounded
  return static_cast<uint8_t>((a * b + 127) / 255);
}

/// Converts Adobe's CMYK, which is inverted (255 is no ink), to RGB: C * K / 255 and so on.
std::vector<uint8_t> rgb_of_cmyk(const std::vector<uint8_t>& cmyk) {
  std::vector<uint8_t> rgb;
  rgb.reserve(cmyk.size() / 4 * 3);
  for (size_t i = 0; i < cmyk.size(); i += 4) {
    const uint8_t k = cmyk[i + 3];
    for (size_t c = 0; c < 3; ++c) {
      rgb.push_back(static_cast<uint8_t>(k - times(k, static_cast<uint8_t>(255 - cmyk[i + c]))));
    }
  }
  return rgb;
}

}  // namespace

bool is_jpeg(std::string_view bytes) { return bytes.starts_with("\xff\xd8\xff"); }

Result<ImageInfo> read_jpeg_info(std::string_view bytes, const std::string& what) {
  JpegReader reader;
  if (!read_header(reader, bytes)) return refusal(reader, what);
  if (Status s = check_header(reader, bytes.size(), what); !s.ok()) return std::move(s).error();
  ImageInfo info;
  info.height = reader.info.image_height;
  info.width = reader.info.image_width;
  info.colour = reader.info.num_components > 1;
  for (const jpeg_marker_struct* m = reader.info.marker_list; m != nullptr; m = m->next) {
    const std::string_view data(reinterpret_cast<const char*>(m->data), m->data_length);
    if (!data.starts_with(kExif)) continue;
    info.orientation = exif_orientation(data.substr(kExif.size()));
    break;
  }
  return info;
}

Result<ImagePixels> decode_jpeg(std::string_view bytes, const std::string& what) {
  JpegReader reader;
  if (!read_header(reader, bytes)) return refusal(reader, what);
  if (Status s = check_header(reader, bytes.size(), what); !s.ok()) return std::move(s).error();
  if (!start(reader)) return refusal(reader, what);
  ImagePixels pixels;
  pixels.height = reader.info.output_height;
  pixels.width = reader.info.output_width;
  pixels.channels = reader.info.output_components;
  pixels.values.resize(static_cast<size_t>(pixels.height * pixels.width * pixels.channels));
  if (!read_rows(reader, pixels.values.data())) return refusal(reader, what);
  if (pixels.channels == 4) {
    pixels.values = rgb_of_cmyk(pixels.values);
    pixels.channels = 3;
  }
  return pixels;
}

}  // namespace trainyard
