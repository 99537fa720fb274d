// Tests of the contact sheet of sample images: which images it shows and where, and that it is a
// PNG file that other programs can read.
#include "src/data/load/contact_sheet.h"

#include <gtest/gtest.h>
#include <png.h>

#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

/// Ten images of 2 x 3 pixels; all pixels of image i are 20 i, except the first, which is 255.
struct Samples {
  Samples() : dataset(idx_file(0x08, {10, 2, 3}, pixels()), idx_file(0x08, {10}, labels())) {}
  static std::string pixels() {
    std::string bytes;
    for (int i = 0; i < 10; ++i) {
      bytes += '\xff' + std::string(5, static_cast<char>(20 * i));
    }
    return bytes;
  }
  static std::string labels() { return std::string("\0\1\0\1\0\1\0\1\0\1", 10); }
  IngestedIdx dataset;
};

uint8_t grey_at(const Sheet& sheet, int64_t y, int64_t x) {
  const uint8_t* p = &sheet.pixels[static_cast<size_t>((y * sheet.width + x) * 3)];
  EXPECT_TRUE(p[0] == p[1] && p[1] == p[2]);
  return p[0];
}

TEST(ContactSheet, HasEvenlySpacedImagesAndTheirAugmentedVersions) {
  const Samples samples;
  ASSERT_TRUE(samples.dataset.ok()) << samples.dataset.message();
  const Augmenter flip({RandomHorizontalFlip{1}}, {1, 2, 3}, {0});
  const auto sheet = make_sheet(*samples.dataset, flip, {}, {.images = 5, .versions = 2});
  ASSERT_TRUE(sheet.ok()) << sheet.error().message;
  // Each image is enlarged 32 times to 96 x 64 pixels, with 4 pixels between images.
  EXPECT_EQ(sheet->width, 4 + 3 * 100);
  EXPECT_EQ(sheet->height, 4 + 5 * 68);
  ASSERT_EQ(sheet->lines.size(), 5u);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(sheet->lines[static_cast<size_t>(i)].row, 2 * i);
    EXPECT_EQ(sheet->lines[static_cast<size_t>(i)].label, "0");
    const int64_t top = 4 + i * 68;
    EXPECT_EQ(grey_at(*sheet, top, 4), 255);  // the first pixel of the original
    EXPECT_EQ(grey_at(*sheet, top + 31, 4 + 31), 255);
    EXPECT_EQ(grey_at(*sheet, top + 32, 4 + 31), 40 * i);
    EXPECT_EQ(grey_at(*sheet, top, 104), 40 * i);  // flipped: the first pixel is now the last
    EXPECT_EQ(grey_at(*sheet, top, 104 + 95), 255);
    EXPECT_EQ(grey_at(*sheet, top, 204 + 95), 255);
    EXPECT_EQ(grey_at(*sheet, top - 1, 4), 255) << "the margin is white";
  }
}

TEST(ContactSheet, WithoutAugmentationOriginalsAlone) {
  const Samples samples;
  const auto sheet = make_sheet(*samples.dataset, {}, {}, {.images = 99, .versions = 7});
  ASSERT_TRUE(sheet.ok()) << sheet.error().message;
  EXPECT_EQ(sheet->width, 104);
  EXPECT_EQ(sheet->lines.size(), 10u);
}

TEST(ContactSheet, ShowsMixturesWithTheLineAbove) {
  const Samples samples;
  const Mixer mixer({Mixup{1}}, {1, 2, 3}, 2);
  const auto sheet = make_sheet(*samples.dataset, {}, mixer, {.images = 5, .versions = 1});
  ASSERT_TRUE(sheet.ok()) << sheet.error().message;
  const double share = mixer.draw(0, 0).share;
  for (int64_t i = 0; i < 5; ++i) {  // the last pixel of image i is 40 i
    const double mixed =
        share * 40 * static_cast<double>(i) + (1 - share) * 40 * static_cast<double>((i + 4) % 5);
    EXPECT_NEAR(grey_at(*sheet, 4 + i * 68 + 63, 104 + 95), mixed, 0.5);
  }
}

TEST(ContactSheet, RefusesUnsupportedDatasets) {
  const Samples samples;
  EXPECT_EQ(make_sheet(*samples.dataset, {}, {}, {.images = 0}).error().violations[0].field,
            "images");
  EXPECT_EQ(make_sheet(*samples.dataset, {}, {}, {.versions = 65}).error().violations[0].field,
            "versions");
  const IngestedCsv table(csv_options("b"), "a,b\n1,x\n2,y\n");
  EXPECT_EQ(make_sheet(*table, {}, {}, {}).error().reason, "PREVIEW_UNSUPPORTED");
}

TEST(ContactSheet, ThePngHoldsThePixels) {
  const Samples samples;
  const auto sheet = make_sheet(*samples.dataset, {}, {}, {});
  const std::string bytes = encode_png(*sheet);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_TRUE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()));
  EXPECT_EQ(image.width, static_cast<png_uint_32>(sheet->width));
  EXPECT_EQ(image.height, static_cast<png_uint_32>(sheet->height));
  image.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  ASSERT_TRUE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr));
  EXPECT_EQ(pixels, sheet->pixels);
}

}  // namespace
}  // namespace trainyard
