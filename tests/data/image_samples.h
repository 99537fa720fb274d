// tests/data/image_samples.h: image files and archives created by tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/data/dataset.h"
#include "tests/data/temporary_folder.h"

namespace trainyard {

/// An image of tests/golden/image_files.json.
struct GoldenImage {
  std::string name, file, grey, rgb;  // the file, and its pixels as planes of bytes
  int64_t height = 0, width = 0;
  int tolerance = 0;
  bool colour = false;
};
const std::vector<GoldenImage>& golden_images();
const GoldenImage& golden_image(std::string_view name);

struct GoldenResize {
  int64_t height, width;
  std::string stretch, crop, pad;
};
struct GoldenResizes {
  std::string source;  // the content of a PNG file
  std::vector<GoldenResize> sizes;
};
GoldenResizes golden_resizes();

/// Returns a gray PNG file whose pixels are all `value`.
std::string grey_png(uint8_t value, uint32_t height = 2, uint32_t width = 2);
/// Returns a square gray PNG file with these samples of 16 bits.
std::string deep_grey_png(const std::vector<uint16_t>& pixels, uint32_t side);
/// Returns a color PNG file whose pixels all have these values.
std::string colour_png(uint8_t red, uint8_t green, uint8_t blue);
/// Returns a PNG header that claims a size, without pixels.
std::string png_header(uint32_t height, uint32_t width);

struct ArchiveFile {
  std::string path;
  std::string content;
  enum class Kind { kFile, kFolder, kLink, kHardLink, kPipe } kind = Kind::kFile;
};
/// Returns an archive. `format` is "ustar", "pax", "gnutar" or "zip"; `filter` is "", "gzip", "xz"
/// or "zstd".
std::string archive_of(const std::vector<ArchiveFile>& files, const std::string& format = "ustar",
                       const std::string& filter = "");
/// Writes the files of an archive to disk.
void write_files(const std::filesystem::path& folder, const std::vector<ArchiveFile>& files);

/// Returns two classes with two gray images each: cats/1.png (gray level 10), cats/2.png (20),
/// dogs/1.png (30), dogs/2.png (40).
std::vector<ArchiveFile> pets();

}  // namespace trainyard
