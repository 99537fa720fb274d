// Tests of augmented images: compares the pixels of each change with torchvision's, and checks what
// is drawn at random.
#include "src/data/load/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "src/data/load/image_changes.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

void change(const std::string& name, const nlohmann::json& p, const ImageView& image) {
  const auto value = [&] { return p.at("value").get<float>(); };
  if (name == "flip_horizontally") return flip_horizontally(image);
  if (name == "flip_vertically") return flip_vertically(image);
  if (name == "rotate") return rotate(image, p.at("degrees").get<double>());
  if (name == "shift") {
    return shift(image, p.at("up").get<int64_t>(), p.at("left").get<int64_t>());
  }
  if (name == "resized_crop") {
    const auto box = p.at("box").get<std::vector<int64_t>>();
    return resized_crop(image, {box[0], box[1], box[2], box[3]});
  }
  if (name == "adjust_brightness") return adjust_brightness(image, value());
  if (name == "adjust_contrast") return adjust_contrast(image, value());
  if (name == "adjust_saturation") return adjust_saturation(image, value());
  if (name == "adjust_hue") return adjust_hue(image, value());
  FAIL() << "no change is called " << name;
}

TEST(ImageChanges, MatchTorchvision) {
  std::ifstream file(testing::source_path("tests/golden/augmentation.json"));
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::set<std::string> seen;
  std::vector<float> scratch;
  for (const nlohmann::json& c : golden.at("cases")) {
    const auto name = c.at("name").get<std::string>();
    SCOPED_TRACE(name + " " + c.at("parameters").dump() + " of " + c.at("shape").dump());
    const auto shape = c.at("shape").get<std::vector<int64_t>>();
    auto pixels = c.at("image").get<std::vector<float>>();
    const auto expected = c.at("result").get<std::vector<float>>();
    change(name, c.at("parameters"), {shape[0], shape[1], shape[2], pixels, scratch});
    ASSERT_EQ(pixels.size(), expected.size());
    for (size_t i = 0; i < pixels.size(); ++i) {
      ASSERT_NEAR(pixels[i], expected[i], 2e-3) << "pixel " << i;  // on a scale of 0 to 255
    }
    seen.insert(name);
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST(ImageChanges, ABoxIsFilledWithinTheImage) {
  std::vector<float> pixels(2 * 3 * 4, 1.0f), scratch;
  const ImageView image{2, 3, 4, pixels, scratch};
  fill_box(image, {-1, 2, 3, 9}, std::vector<float>{5, 6});
  EXPECT_EQ(pixels, (std::vector<float>{1, 1, 5, 5, 1, 1, 5, 5, 1, 1, 1, 1,  //
                                        1, 1, 6, 6, 1, 1, 6, 6, 1, 1, 1, 1}));
  fill_box(image, {0, 4, 3, 2}, std::vector<float>{9, 9});  // outside the image
  EXPECT_EQ(std::ranges::count(pixels, 9.0f), 0);
}

std::vector<float> ramp(int64_t count) {
  std::vector<float> pixels(static_cast<size_t>(count));
  std::iota(pixels.begin(), pixels.end(), 1.0f);
  return pixels;
}

std::vector<float> augmented(const std::vector<Augmentation>& list, const Shape& shape,
                             uint64_t seed, int64_t epoch, int64_t row) {
  const Augmenter augmenter(list, shape, std::vector<float>(static_cast<size_t>(shape[0]), 100));
  std::vector<float> pixels = ramp(shape.elements()), scratch;
  augmenter.apply(pixels, seed, epoch, row, scratch);
  return pixels;
}

const std::vector<Augmentation>& everything() {
  static const std::vector<Augmentation> list = {RandomHorizontalFlip{},
                                                 RandomVerticalFlip{},
                                                 RandomCrop{2},
                                                 RandomResizedCrop{},
                                                 RandomRotation{20},
                                                 ColorJitter{0.4, 0.4, 0.4, 0.1},
                                                 Cutout{3}};
  return list;
}

TEST(Augmenter, DependsOnSeedEpochAndRow) {
  const Shape shape{3, 6, 5};
  const std::vector<float> first = augmented(everything(), shape, 1, 2, 3);
  EXPECT_EQ(augmented(everything(), shape, 1, 2, 3), first);
  EXPECT_NE(augmented(everything(), shape, 2, 2, 3), first);
  EXPECT_NE(augmented(everything(), shape, 1, 3, 3), first);
  EXPECT_NE(augmented(everything(), shape, 1, 2, 4), first);
  for (int64_t row = 0; row < 300; ++row) {
    for (const float x : augmented(everything(), shape, 1, 0, row)) {
      ASSERT_TRUE(x >= 0 && x <= 255) << row;
    }
  }
}

TEST(Augmenter, FlipsHaveTheGivenProbability) {
  const Shape shape{1, 1, 3};
  int flipped = 0;
  for (int64_t row = 0; row < 4000; ++row) {
    const auto pixels = augmented({RandomHorizontalFlip{0.25}}, shape, 7, 0, row);
    if (pixels == std::vector<float>{3, 2, 1}) ++flipped;
  }
  EXPECT_NEAR(flipped, 1000, 4 * std::sqrt(4000 * 0.1875));
  EXPECT_EQ(augmented({RandomHorizontalFlip{0}}, shape, 7, 0, 1), ramp(3));
  EXPECT_NE(augmented({RandomHorizontalFlip{1}}, shape, 7, 0, 1), ramp(3));
}

TEST(Augmenter, CropPositionsAreUniform) {
  std::map<std::pair<int, int>, int> places;
  for (int64_t row = 0; row < 2500; ++row) {
    const auto pixels = augmented({RandomCrop{2}}, {1, 9, 9}, 3, 1, row);
    const int middle = static_cast<int>(pixels[4 * 9 + 4]) - 1;  // the center's original position
    ++places[{middle / 9 - 4, middle % 9 - 4}];
  }
  EXPECT_EQ(places.size(), 25u);
  for (const auto& [place, count] : places) {
    EXPECT_NEAR(count, 100, 50) << place.first << ", " << place.second;
    EXPECT_LE(std::abs(place.first), 2);
  }
}

TEST(Augmenter, AResizedCropStaysWithinItsBounds) {
  // The image rises from left to right, so the range of values is the width of the crop.
  constexpr int64_t kSide = 40;
  const Augmenter augmenter({RandomResizedCrop{0.25, 0.25, 1, 1}}, {1, kSide, kSide}, {0});
  std::vector<float> scratch;
  std::set<int> lefts;
  for (int64_t row = 0; row < 200; ++row) {
    std::vector<float> pixels(kSide * kSide);
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i % kSide);
    augmenter.apply(pixels, 5, 0, row, scratch);
    const auto [low, high] = std::ranges::minmax(pixels);
    EXPECT_NEAR(high - low, kSide / 2 - 1, 1e-3);
    lefts.insert(static_cast<int>(std::lround(low)));
  }
  EXPECT_GT(lefts.size(), 15u);
  EXPECT_EQ(*lefts.begin(), 0);
  EXPECT_EQ(*lefts.rbegin(), kSide / 2);
}

TEST(Augmenter, CutoutFillsWithTheMeanAndMayTouchTheEdge) {
  std::set<int64_t> sizes;
  for (int64_t row = 0; row < 200; ++row) {
    const auto pixels = augmented({Cutout{4}}, {1, 9, 9}, 3, 1, row);
    const int64_t changed = std::ranges::count(pixels, 100.0f);
    EXPECT_LE(changed, 16);
    EXPECT_GE(changed, 4);
    sizes.insert(changed);
  }
  EXPECT_TRUE(sizes.contains(16));
  EXPECT_GT(sizes.size(), 3u);
}

// Returns the image [2, H, W] after a move, with 100 where augmented() would fill it.
std::vector<float> moved(const kernels::ImageMove& move, const Shape& shape) {
  const std::vector<float> from = ramp(shape.elements());
  const int64_t area = shape[1] * shape[2];
  std::vector<float> to;
  for (int64_t c = 0; c < shape[0]; ++c) {
    for (int32_t y = 0; y < shape[1]; ++y) {
      for (int32_t x = 0; x < shape[2]; ++x) {
        const int64_t i = kernels::source_of(move, shape[2], y, x);
        to.push_back(i == kernels::kFilledPixel  ? 100
                     : i == kernels::kBlackPixel ? 0
                                                 : from[static_cast<size_t>(c * area + i)]);
      }
    }
  }
  return to;
}

TEST(Augmenter, TheReturnedTransformIsTheAppliedOne) {
  const RandomHorizontalFlip across;
  const RandomVerticalFlip down;
  const std::vector<std::vector<Augmentation>> lists = {
      {across},
      {down},
      {RandomCrop{2}},
      {Cutout{3}},
      {RandomCrop{4}, across, Cutout{3}},
      {Cutout{2}, RandomCrop{3}, down, across},   // the crop moves the box
      {RandomCrop{5}, Cutout{4}, RandomCrop{5}},  // border and box that are cut off do not return
      {across, RandomCrop{1}, across, RandomCrop{7}, down, Cutout{1}, RandomCrop{2}},
  };
  for (size_t k = 0; k < lists.size(); ++k) {
    for (const Shape& shape : {Shape{2, 5, 7}, Shape{1, 8, 4}, Shape{3, 1, 9}}) {
      const Augmenter augmenter(lists[k], shape,
                                std::vector<float>(static_cast<size_t>(shape[0]), 100));
      ASSERT_TRUE(moves_alone(lists[k]));
      for (int64_t row = 0; row < 40; ++row) {
        ASSERT_EQ(moved(augmenter.draw_move(7, 3, row), shape),
                  augmented(lists[k], shape, 7, 3, row))
            << "list " << k << ", " << shape.to_string() << ", row " << row;
      }
    }
  }
}

TEST(Augmenter, IdentityTransformsAreRecognized) {
  EXPECT_TRUE(moves_alone({}));
  EXPECT_FALSE(moves_alone(std::vector<Augmentation>{Cutout{}, Cutout{}})) << "one box alone";
  EXPECT_FALSE(moves_alone(std::vector<Augmentation>{RandomCrop{}, RandomResizedCrop{}}));
  EXPECT_FALSE(moves_alone(std::vector<Augmentation>{RandomRotation{5}}));
  EXPECT_FALSE(moves_alone(std::vector<Augmentation>{ColorJitter{}}));
}

}  // namespace
}  // namespace trainyard
