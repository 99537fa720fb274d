#include "tests/data/image_samples.h"

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/data/data_samples.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

const nlohmann::json& images_golden() {
  static const nlohmann::json json = [] {
    std::ifstream in(testing::source_path("tests/golden/image_files.json"));
    return nlohmann::json::parse(in);
  }();
  return json;
}

std::string be32(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
  return out;
}
std::string chunk(const std::string& name, const std::string& body) {
  const std::string data = name + body;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size()));
  return be32(static_cast<uint32_t>(body.size())) + data + be32(static_cast<uint32_t>(crc));
}
std::string header(uint32_t height, uint32_t width, char colour_type, char bits = 8) {
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR", be32(width) + be32(height) + bits + colour_type + std::string(3, '\0'));
}
/// Returns the chunks after the header, with these rows of filter bytes and pixels.
std::string pixel_chunks(const std::string& rows) {
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(rows.data()), rows.size());
  packed.resize(size);
  return chunk("IDAT", packed) + chunk("IEND", "");
}
std::string png(uint32_t height, uint32_t width, char colour_type, const std::string& pixel) {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';
    for (uint32_t x = 0; x < width; ++x) rows += pixel;
  }
  return header(height, width, colour_type) + pixel_chunks(rows);
}

la_ssize_t append(archive*, void* out, const void* bytes, size_t count) {
  static_cast<std::string*>(out)->append(static_cast<const char*>(bytes), count);
  return static_cast<la_ssize_t>(count);
}

}  // namespace

const std::vector<GoldenImage>& golden_images() {
  static const std::vector<GoldenImage> images = [] {
    std::vector<GoldenImage> all;
    for (const auto& j : images_golden()["images"]) {
      all.push_back({j["name"], from_base64(j["file"]), from_base64(j["grey"]),
                     from_base64(j["rgb"]), j["height"], j["width"], j["tolerance"], j["colour"]});
    }
    return all;
  }();
  return images;
}

const GoldenImage& golden_image(std::string_view name) {
  const auto& all = golden_images();
  return *std::find_if(all.begin(), all.end(), [&](const auto& i) { return i.name == name; });
}

GoldenResizes golden_resizes() {
  GoldenResizes all{from_base64(images_golden()["source"]), {}};
  for (const auto& j : images_golden()["resized"]) {
    all.sizes.push_back({j["size"][0], j["size"][1], from_base64(j["stretch"]),
                         from_base64(j["crop"]), from_base64(j["pad"])});
  }
  return all;
}

std::string grey_png(uint8_t value, uint32_t height, uint32_t width) {
  return png(height, width, 0, std::string(1, static_cast<char>(value)));
}
std::string deep_grey_png(const std::vector<uint16_t>& pixels, uint32_t side) {
  std::string rows;
  for (size_t i = 0; i < pixels.size(); ++i) {
    if (i % side == 0) rows += '\0';
    rows += static_cast<char>(pixels[i] >> 8);
    rows += static_cast<char>(pixels[i] & 0xff);
  }
  return header(side, side, 0, 16) + pixel_chunks(rows);
}
std::string colour_png(uint8_t red, uint8_t green, uint8_t blue) {
  return png(2, 2, 2, {static_cast<char>(red), static_cast<char>(green), static_cast<char>(blue)});
}
std::string png_header(uint32_t height, uint32_t width) {
  return header(height, width, 2) + chunk("IDAT", "");
}

std::string archive_of(const std::vector<ArchiveFile>& files, const std::string& format,
                       const std::string& filter) {
  std::string out;
  archive* a = archive_write_new();
  EXPECT_EQ(archive_write_set_format_by_name(a, format.c_str()), ARCHIVE_OK);
  if (!filter.empty()) {
    EXPECT_EQ(archive_write_add_filter_by_name(a, filter.c_str()), ARCHIVE_OK);
  }
  archive_write_set_bytes_in_last_block(a, 1);
  archive_write_open(a, &out, nullptr, append, nullptr);
  for (const ArchiveFile& file : files) {
    archive_entry* entry = archive_entry_new();
    using Kind = ArchiveFile::Kind;
    archive_entry_set_pathname(entry, file.path.c_str());
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_filetype(entry, file.kind == Kind::kFolder ? AE_IFDIR
                                      : file.kind == Kind::kLink ? AE_IFLNK
                                      : file.kind == Kind::kPipe ? AE_IFIFO
                                                                 : AE_IFREG);
    if (file.kind == Kind::kLink) archive_entry_set_symlink(entry, file.content.c_str());
    if (file.kind == Kind::kHardLink) archive_entry_set_hardlink(entry, file.content.c_str());
    const bool data = file.kind == Kind::kFile;
    archive_entry_set_size(entry, data ? static_cast<la_int64_t>(file.content.size()) : 0);
    archive_write_header(a, entry);
    if (data) archive_write_data(a, file.content.data(), file.content.size());
    archive_entry_free(entry);
  }
  archive_write_close(a);
  archive_write_free(a);
  return out;
}

void write_files(const std::filesystem::path& folder, const std::vector<ArchiveFile>& files) {
  for (const ArchiveFile& file : files) {
    const std::filesystem::path path = folder / file.path;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << file.content;
  }
}

std::vector<ArchiveFile> pets() {
  return {{"cats/1.png", grey_png(10)},
          {"cats/2.png", grey_png(20)},
          {"dogs/1.png", grey_png(30)},
          {"dogs/2.png", grey_png(40)}};
}

}  // namespace trainyard
