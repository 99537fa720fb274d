// Compares image files with Pillow's pixels (tests/golden/image_files.json), and reads damaged
// files. The tests fail if channels or orientations are mixed up, alpha or palettes are mistaken
// for pixels, or truncated images are accepted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "src/data/image/image_codec.h"
#include "src/data/image/image_resize.h"
#include "tests/data/image_samples.h"

namespace trainyard {
namespace {

std::vector<uint8_t> planes_of(const ImagePixels& pixels, int64_t height, int64_t width,
                               ResizeMode mode) {
  const Shape shape{pixels.channels, height, width};
  std::vector<uint8_t> out(static_cast<size_t>(shape.elements()));
  place_image(pixels, shape, mode, out);
  return out;
}

int largest_difference(const std::vector<uint8_t>& got, const std::string& expected) {
  if (got.size() != expected.size()) return 256;
  int largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(got[i] - static_cast<unsigned char>(expected[i])));
  }
  return largest;
}

TEST(ImageFiles, HavePillowsPixels) {
  ASSERT_GT(golden_images().size(), 20u);
  for (const GoldenImage& image : golden_images()) {
    const Result<ImageInfo> info = read_image_info(image.file, "x");
    ASSERT_TRUE(info.ok()) << image.name << ": " << info.error().message;
    EXPECT_EQ(info->height, image.height) << image.name;
    EXPECT_EQ(info->width, image.width) << image.name;
    EXPECT_EQ(info->colour, image.colour) << image.name;
    for (const int64_t channels : {1, 3}) {
      const Result<ImagePixels> pixels = decode_image(image.file, channels, "x");
      ASSERT_TRUE(pixels.ok()) << image.name << ": " << pixels.error().message;
      EXPECT_EQ(pixels->channels, channels);
      const auto planes = planes_of(*pixels, image.height, image.width, ResizeMode::kNone);
      EXPECT_LE(largest_difference(planes, channels == 1 ? image.grey : image.rgb), image.tolerance)
          << image.name << " " << channels;
    }
  }
}

TEST(ImageFiles, AreResizedAsPillowResizes) {
  const GoldenResizes all = golden_resizes();
  const Result<ImagePixels> source = decode_image(all.source, 3, "x");
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(all.sizes.size(), 5u);
  for (const GoldenResize& size : all.sizes) {
    const auto difference = [&](ResizeMode mode, const std::string& expected) {
      return largest_difference(planes_of(*source, size.height, size.width, mode), expected);
    };
    // Pillow rounds between the two axes, this code does not.
    EXPECT_LE(difference(ResizeMode::kStretch, size.stretch), 1) << size.height;
    EXPECT_LE(difference(ResizeMode::kCrop, size.crop), 1) << size.height;
    EXPECT_LE(difference(ResizeMode::kPad, size.pad), 1) << size.height;
  }
}

TEST(ImageFiles, EveryCutIsRefused) {
  for (const char* name : {"png_RGB", "png_P_transparent", "png_interlaced", "png_exif_6", "jpeg_L",
                           "jpeg_420", "jpeg_progressive", "jpeg_CMYK", "jpeg_exif_6"}) {
    const std::string& file = golden_image(name).file;
    for (size_t bytes = 0; bytes < file.size(); ++bytes) {
      const Result<ImagePixels> cut = decode_image(file.substr(0, bytes), 3, "data: 'a.jpg'");
      ASSERT_FALSE(cut.ok()) << name << " cut to " << bytes << " of " << file.size();
      EXPECT_EQ(cut.error().reason, "DATASET_INVALID");
      EXPECT_TRUE(cut.error().message.starts_with("data: 'a.jpg': ")) << cut.error().message;
    }
  }
}

TEST(ImageFiles, FlippedBitsAreRefusedOrDecodedToTheSameSize) {
  for (const char* name : {"png_RGBA", "png_P", "jpeg_420", "jpeg_progressive", "jpeg_exif_3"}) {
    const GoldenImage& image = golden_image(name);
    for (size_t at = 0; at < image.file.size(); ++at) {
      for (const int bit : {0, 3, 7}) {
        std::string damaged = image.file;
        damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
        const Result<ImagePixels> pixels = decode_image(damaged, 3, "x");
        if (!pixels.ok()) continue;
        EXPECT_EQ(std::ssize(pixels->values), pixels->height * pixels->width * 3) << name << at;
      }
    }
  }
}

TEST(ImageFiles, WrongSizesAreRefusedBeforeMemoryIsAllocated) {
  for (const uint32_t side : {0u, 70000u, 0x7fffffffu}) {
    const Result<ImageInfo> info = read_image_info(png_header(side, side), "x");
    EXPECT_FALSE(info.ok()) << side;
    EXPECT_FALSE(decode_image(png_header(side, side), 3, "x").ok());
  }
  std::string jpeg = golden_image("jpeg_L").file;
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xff\xff\xff\xff");
  const Result<ImageInfo> info = read_image_info(jpeg, "x");
  ASSERT_FALSE(info.ok());
  EXPECT_NE(info.error().message.find("65500"), std::string::npos) << info.error().message;
  jpeg.replace(frame + 5, 4, "\x40\x01\x40\x01");
  EXPECT_EQ(read_image_info(jpeg, "x").error().message,
            "x: an image of 16385 x 16385 pixels, expected 1 to 67108864");
}

// 71 bytes that claimed 8000 x 8000 pixels took 0.3 s, and a third of a second each in an archive.
TEST(ImageFiles, ASizeThatTheFileCannotHoldIsRefusedByItsHeader) {
  const std::string claim = "x: an image of 8000 x 8000 pixels cannot be in ";
  EXPECT_TRUE(read_image_info(png_header(8000, 8000), "x").error().message.starts_with(claim));
  EXPECT_TRUE(decode_image(png_header(8000, 8000), 3, "x").error().message.starts_with(claim));
  std::string jpeg = golden_image("jpeg_L").file;
  jpeg.replace(jpeg.find("\xff\xc0") + 5, 4, "\x1f\x40\x1f\x40");
  EXPECT_TRUE(read_image_info(jpeg, "x").error().message.starts_with(claim));
  EXPECT_TRUE(decode_image(jpeg, 1, "x").error().message.starts_with(claim));
  // The emptiest image that compresses as well as deflate can is accepted.
  const std::string even = grey_png(0, 4000, 4000);
  EXPECT_TRUE(decode_image(even, 1, "x").ok()) << even.size();
}

TEST(ImageFiles, ExifThatMakesNoSenseIsUpright) {
  const std::string little("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 22);
  EXPECT_EQ(exif_orientation(little), 6);
  for (size_t bytes = 0; bytes < little.size(); ++bytes) {
    EXPECT_EQ(exif_orientation(std::string_view(little).substr(0, bytes)), 1) << bytes;
  }
  for (const char value : {'\0', '\x09', '\xff'}) {
    std::string odd = little;
    odd[18] = value;
    EXPECT_EQ(exif_orientation(odd), 1);
  }
  std::string far = little;
  far.replace(4, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(exif_orientation(far), 1);
}

}  // namespace
}  // namespace trainyard
