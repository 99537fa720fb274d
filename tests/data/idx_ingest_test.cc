// The tests fail if pixels or labels are in the wrong place, or headers with false sizes are
// accepted (B39).
#include <gtest/gtest.h>

#include <cmath>

#include "tests/data/data_samples.h"

namespace trainyard {
namespace {

std::string images(uint32_t rows) {
  std::string pixels;
  for (uint32_t i = 0; i < rows * 6; ++i) pixels += static_cast<char>(i * 7);
  return idx_file(0x08, {rows, 2, 3}, pixels);
}
std::string idx_labels(std::string_view values) {
  return idx_file(0x08, {static_cast<uint32_t>(values.size())}, values);
}

TEST(IdxIngest, BytesAndLabelsAreUnchanged) {
  for (const bool packed : {false, true}) {
    const auto pack = [&](const std::string& s) { return packed ? gzip(s) : s; };
    const IngestedIdx d(pack(images(3)), pack(idx_labels({"\0\1\4", 3})), pack(images(2)),
                        pack(idx_labels({"\4\0", 2})));
    ASSERT_TRUE(d.ok()) << d.message();
    EXPECT_EQ(d->schema().image, Shape({1, 2, 3}));
    EXPECT_EQ(d->schema().target.classes, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
    EXPECT_EQ(d->schema().train_rows, 3);
    EXPECT_EQ(d->schema().test_rows, 2);
    EXPECT_EQ(d->train().image_u8[17], static_cast<uint8_t>(17 * 7));
    EXPECT_EQ(d->train().target_class[2], 4);
    EXPECT_EQ(d->test().target_class[0], 4);
    EXPECT_EQ(d->train().image_sums.size(), 6u);
  }
}

TEST(IdxIngest, FloatsAndChannelsAndWideLabels) {
  const std::string pixels =
      idx_file(0x0D, {2, 2, 1, 2}, idx_floats({0, -1.5f, 2, 3, 4, 5, 6, 1e-3f}));
  const std::string wide = idx_file(0x0C, {2}, std::string("\0\0\1\0\0\0\0\1", 8));
  const IngestedIdx d(pixels, wide);
  ASSERT_TRUE(d.ok()) << d.message();
  EXPECT_EQ(d->schema().image, Shape({2, 1, 2}));
  EXPECT_EQ(d->schema().image_dtype, DType::kF32);
  EXPECT_EQ(d->train().image_f32[1], -1.5f);
  EXPECT_EQ(d->train().image_f32[7], 1e-3f);
  EXPECT_EQ(d->train().target_class[0], 256);
  EXPECT_EQ(d->schema().target.classes.size(), 257u);
}

TEST(IdxIngestB39, WrongHeadersAreRefusedBeforeMemoryIsAllocated) {
  const std::string ok_labels = idx_labels({"\0\1\1", 3});
  const std::string pixels = images(3).substr(16);
  struct Case {
    std::string images;
    std::string labels;
    std::string message;
  };
  const std::string huge = idx_file(0x08, {0x7fffffff, 16, 16}, "");
  const std::vector<Case> cases = {
      {"", ok_labels, "train_images: the file ends within the IDX header"},
      {"abcd", ok_labels, "train_images: not an IDX file (it does not begin with two zero bytes)"},
      {idx_file(0x08, {3, 2, 4}, pixels), ok_labels,
       "train_images: the header promises [3, 2, 4], 24 bytes, but there are only 18"},
      {idx_file(0x08, {3, 2, 2}, pixels), ok_labels,
       "train_images: the header promises [3, 2, 2], 12 bytes, but the file has more"},
      {gzip(idx_file(0x08, {3, 2, 4}, pixels)), ok_labels,
       "train_images: the header promises [3, 2, 4], 24 bytes, but there are only 18"},
      {gzip(idx_file(0x08, {3, 2, 2}, pixels)), ok_labels,
       "train_images: the header promises [3, 2, 2], 12 bytes, but the file has more"},
      {huge, ok_labels,
       "train_images: the header promises [2147483647, 16, 16], 549755813632 bytes, but there are "
       "only 0"},
      {gzip(huge), ok_labels,
       "train_images: the header promises [2147483647, 16, 16], 549755813632 bytes, but the file "
       "cannot contain more than " +
           std::to_string(gzip(huge).size() * 1032 - 16)},
      {idx_file(0x08, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, ""), ok_labels,
       "train_images: sizes [4294967295, 4294967295, 4294967295, 4294967295] are too large"},
      {idx_file(0x08, {0, 2, 3}, ""), ok_labels, "train_images: the file has no rows"},
      {idx_file(0x08, {3, 0, 3}, ""), ok_labels,
       "train_images: images of [1, 0, 3], expected 1 to 268435456 values"},
      {idx_file(0x08, {3, 6}, pixels), ok_labels,
       "train_images: rank 2, expected images of [N, H, W] or [N, C, H, W]"},
      {idx_file(0x0E, {3, 2, 3}, pixels), ok_labels,
       "train_images: element type 0x0e, expected 0x08 (bytes) or 0x0d (32-bit floats)"},
      {idx_file(0x08, {1, 1, 1, 1, 1}, "x"), ok_labels, "train_images: rank 5, expected 1 to 4"},
      {images(3), idx_labels({"\0\1", 2}),
       "train_labels: 2 labels, expected 3 as there are images"},
      {images(3), idx_labels({"\2\2\2", 3}),
       "train_labels: every label is 2, expected at least 2 different ones"},
      {images(3), images(3), "train_labels: rank 3, expected labels of [N]"},
      {images(3), idx_file(0x0C, {3}, std::string(8, '\0') + "\xff\xff\xff\xff"),
       "train_labels: row 3: label -1 is out of range, expected 0 to 65559"},
      // With label 70,000, each smaller number would also become a class with a name.
      {images(3), idx_file(0x0C, {3}, std::string(8, '\0') + std::string("\x00\x01\x11\x70", 4)),
       "train_labels: row 3: label 70000 is out of range, expected 0 to 65559"},
      {idx_file(0x0D, {3, 1, 1}, idx_floats({0, NAN, 1})), ok_labels,
       "train_images: row 2, value 1: not a finite number"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(IngestedIdx(c.images, c.labels).message(), c.message);
  }
  EXPECT_EQ(IngestedIdx(images(3), ok_labels, images(1), idx_labels({"\2", 1})).message(),
            "test_labels: row 1: label 2 is out of range, the training labels are 0 to 1");
  EXPECT_EQ(
      IngestedIdx(images(3), ok_labels, idx_file(0x08, {1, 1, 1}, "x"), idx_labels({"\0", 1}))
          .message(),
      "test_images: U8 images of [1, 1, 1], expected U8 of [1, 2, 3] as in the training data");
}

TEST(IdxIngestB39, NoCutOrChangedByteCrashes) {
  const std::string image_file = images(3);
  const std::string label_file = idx_labels({"\0\1\1", 3});
  for (size_t size = 0; size < image_file.size(); ++size) {
    EXPECT_FALSE(IngestedIdx(image_file.substr(0, size), label_file).ok()) << size;
  }
  for (size_t size = 0; size < label_file.size(); ++size) {
    EXPECT_FALSE(IngestedIdx(image_file, label_file.substr(0, size)).ok()) << size;
  }
  const std::string packed = gzip(image_file);
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_FALSE(IngestedIdx(packed.substr(0, size), label_file).ok()) << size;
  }
  for (size_t i = 0; i < 16; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = image_file;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      EXPECT_FALSE(IngestedIdx(flipped, label_file).ok()) << i << " " << bit;
    }
  }
}

TEST(Ingest, SourcesMustBelongToTheFormat) {
  const TemporaryFolder folder;
  const auto file = folder.write("a", "x,y\n1,a\n2,b\n");
  const auto message = [&](IngestRequest request) {
    return ingest(request, folder / "typed", local_files()).error().message;
  };
  const CsvOptions y = csv_options("y");
  EXPECT_TRUE(message({"parquet", {{"data", file}}, y})
                  .starts_with("format: 'parquet', expected csv, jsonl, "));
  EXPECT_EQ(message({"csv", {}, y}), "sources: role data is required");
  EXPECT_EQ(message({"csv", {{"data", file}, {"data", file}}, y}),
            "sources: role data is given twice");
  EXPECT_EQ(message({"csv", {{"data", file}, {"train_images", file}}, y}),
            "sources: role 'train_images' does not belong to the format csv");
  EXPECT_EQ(
      message({"idx", {{"train_images", file}, {"train_labels", file}, {"test_images", file}}, {}}),
      "sources: test_images and test_labels belong together, but one is missing");
  EXPECT_EQ(message({"csv", {{"data", folder / "none"}}, y}),
            "data: cannot open the file: No such file or directory");
  EXPECT_EQ(message({"csv", {{"data", folder.path()}}, y}), "data: not a regular file");
}

}  // namespace
}  // namespace trainyard
