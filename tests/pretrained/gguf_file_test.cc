// The tests fail if a number of a quantized tensor is not to the bit that of the package gguf, if a
// setting is read wrongly, or if a damaged file is accepted or the message does not name the field.
#include "src/pretrained/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/base64.h"
#include "tests/pretrained/gguf_builder.h"
#include "tests/support/source_path.h"

namespace trainyard {
namespace {

using testing::gguf_text;
using testing::GgufBuilder;
using testing::has;
using testing::little_endian;
using Json = nlohmann::json;

const Json& golden_files() {
  static const Json content = [] {
    std::ifstream in(testing::source_path("tests/golden/gguf.json"));
    return Json::parse(in);
  }();
  return content;
}

Result<GgufFile> parse(const std::string& bytes) {
  return GgufFile::parse(std::as_bytes(std::span(bytes)));
}

std::string refusal(const std::string& bytes) {
  const Result<GgufFile> file = parse(bytes);
  if (file.ok()) return "accepted";
  EXPECT_TRUE(file.error().reason == "MODEL_FILE_INVALID" ||
              file.error().reason == "MODEL_UNSUPPORTED");
  return file.error().message;
}

std::vector<uint32_t> bits_of(std::span<const float> numbers) {
  std::vector<uint32_t> bits;
  for (const float number : numbers) bits.push_back(std::bit_cast<uint32_t>(number));
  return bits;
}

TEST(GgufFile, HasTheNumbersOfThePackageGgufToTheBit) {
  ASSERT_EQ(golden_files().size(), 11u);
  for (const auto& [type, entry] : golden_files().items()) {
    const std::string bytes = base64_decode(entry["file"].get<std::string>()).value();
    const std::string expected = base64_decode(entry["numbers"].get<std::string>()).value();
    const Result<GgufFile> file = parse(bytes);
    ASSERT_TRUE(file.ok()) << type << ": " << file.error().message;
    const GgufTensor* const tensor = file->find_tensor("t");
    ASSERT_NE(tensor, nullptr) << type;
    EXPECT_EQ(tensor->type->name, type);
    EXPECT_EQ(tensor->shape.dims(), entry["shape"].get<std::vector<int64_t>>()) << type;
    std::vector<float> numbers(static_cast<size_t>(tensor->shape.elements()));
    std::vector<float> wanted(numbers.size());
    ASSERT_EQ(expected.size(), wanted.size() * sizeof(float)) << type;
    std::memcpy(wanted.data(), expected.data(), expected.size());
    widen_blocks(*tensor->type, tensor->bytes, numbers);
    EXPECT_EQ(bits_of(numbers), bits_of(wanted)) << type;
  }
}

TEST(GgufFile, HasSettingsOfEachType) {
  const std::string bytes = base64_decode(golden_files()["F32"]["file"].get<std::string>()).value();
  const GgufFile file = parse(bytes).value();
  const auto integer = [&](const char* key) { return file.find(key)->integer(); };
  EXPECT_EQ(integer("test.u8"), 200);
  EXPECT_EQ(integer("test.i8"), -100);
  EXPECT_EQ(integer("test.u16"), 60000);
  EXPECT_EQ(integer("test.i16"), -30000);
  EXPECT_EQ(integer("test.u32"), 4000000000);
  EXPECT_EQ(integer("test.i32"), -2000000000);
  EXPECT_EQ(integer("test.i64"), -(int64_t{1} << 62));
  EXPECT_EQ(integer("test.u64"), std::nullopt) << "is beyond int64_t";
  EXPECT_EQ(file.find("test.u64")->real(), 9223372036854775813.0);
  EXPECT_EQ(file.find("test.f32")->real(), static_cast<double>(1e-5F));
  EXPECT_EQ(file.find("test.f64")->real(), 1e-300);
  EXPECT_EQ(file.find("test.yes")->flag(), true);
  EXPECT_EQ(file.find("test.text")->text(), "blank \xe2\x96\x81 mark");
  EXPECT_EQ(file.find("test.nothing"), nullptr);
  const auto texts = file.find("test.texts")->elements();
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[1].text(), "bc");
  const auto numbers = file.find("test.numbers")->elements();
  ASSERT_EQ(numbers.size(), 3u);
  EXPECT_EQ(numbers[1].integer(), -1);
  EXPECT_EQ(file.find("test.reals")->elements()[1].real(), -2.0);
  EXPECT_EQ(file.text("test.u8").error().message, "test.u8: expected a text in UTF-8");
  EXPECT_EQ(file.flag("test.u8").error().message, "test.u8: expected true or false");
  EXPECT_EQ(file.index("test.u8", 100).error().message,
            "test.u8: expected a whole number from 0 to 100");
}

TEST(GgufFile, IsRefusedIfItIsCutAnywhere) {
  for (const char* type : {"F32", "Q4_K"}) {
    const std::string whole =
        base64_decode(golden_files()[type]["file"].get<std::string>()).value();
    const GgufFile file = parse(whole).value();
    // The last tensor may be followed by padding.
    const size_t end = static_cast<size_t>(file.tensors().back().bytes.data() -
                                           std::as_bytes(std::span(whole)).data()) +
                       file.tensors().back().bytes.size();
    for (size_t size = 0; size < end; ++size) {
      EXPECT_NE(refusal(whole.substr(0, size)), "accepted") << type << " " << size;
    }
    EXPECT_EQ(refusal(whole.substr(0, end)), "accepted");
  }
}

/// A file with two tensors of 8 numbers.
GgufBuilder two_tensors() {
  GgufBuilder file;
  file.set_text("general.architecture", "llama");
  file.add({"a", {4, 2}, 0, std::string(32, '\0')});
  file.add({"b", {8}, 0, std::string(32, '\0')});
  return file;
}

template <typename Change>
std::string refusal_of(Change change) {
  GgufBuilder file = two_tensors();
  change(file);
  return refusal(file.finish());
}

TEST(GgufFile, VersionsTwoAndThreeAreRead) {
  EXPECT_EQ(refusal_of([](GgufBuilder& f) { f.version = 2; }), "accepted");
  EXPECT_EQ(refusal_of([](GgufBuilder& f) { f.version = 3; }), "accepted");
  EXPECT_EQ(refusal_of([](GgufBuilder& f) { f.version = 1; }), "version: is 1, expected 2 or 3");
  EXPECT_EQ(refusal_of([](GgufBuilder& f) { f.version = 4; }), "version: is 4, expected 2 or 3");
  EXPECT_EQ(refusal_of([](GgufBuilder& f) { f.version = 0x03000000; }),
            "version: the file is big endian, expected a little-endian one");
  EXPECT_EQ(refusal("PK\3\4 something else"),
            "the first bytes: are 'PK\\x03\\x04', expected 'GGUF'");
}

TEST(GgufFile, CountsThatLieAreNamed) {
  EXPECT_TRUE(has(refusal_of([](GgufBuilder& f) { f.more_tensors = int64_t{1} << 60; }),
                  "the number of tensors: is 1152921504606846978, expected at most"));
  EXPECT_TRUE(has(refusal_of([](GgufBuilder& f) { f.more_tensors = 1000; }),
                  "the number of tensors: is 1002, for which the rest of the file"));
  EXPECT_TRUE(has(refusal_of([](GgufBuilder& f) { f.more_settings = 60000; }),
                  "the number of settings: is 60001, for which"));
  const std::string huge = little_endian(~uint64_t{0});
  EXPECT_TRUE(has(refusal_of([&](GgufBuilder& f) { f.set("x.text", 8, huge); }),
                  "x.text: has 18446744073709551615 bytes, expected at most"));
  EXPECT_TRUE(has(
      refusal_of([&](GgufBuilder& f) { f.set("x.list", 9, little_endian(uint32_t{4}) + huge); }),
      "x.list: its length: is 18446744073709551615, for which"));
  EXPECT_TRUE(has(refusal_of([&](GgufBuilder& f) {
                    f.set("x.list", 9,
                          little_endian(uint32_t{8}) + little_endian(uint64_t{1}) + huge);
                  }),
                  "x.list: has 18446744073709551615 bytes"));
}

TEST(GgufFile, SettingsThatAreNoneAreNamed) {
  EXPECT_EQ(refusal_of([](GgufBuilder& f) { f.set("x", 13, "12345678"); }),
            "x: has the type 13, expected 0 to 12");
  EXPECT_EQ(refusal_of([](GgufBuilder& f) {
              f.set("x", 9, little_endian(uint32_t{9}) + little_endian(uint64_t{1}));
            }),
            "x: is an array of arrays, which is not supported");
  EXPECT_EQ(refusal_of([](GgufBuilder& f) { f.set_text("general.architecture", "llama"); }),
            "general.architecture: is there twice");
  EXPECT_TRUE(has(refusal_of([](GgufBuilder& f) { f.set_number("general.alignment", 24); }),
                  "general.alignment: is 24, expected a power of 2"));
  EXPECT_TRUE(has(refusal_of([](GgufBuilder& f) { f.set_number("general.alignment", 0); }),
                  "general.alignment: is 0"));
}

TEST(GgufFile, TensorsThatAreNoneAreNamed) {
  using Tensor = GgufBuilder::Tensor;
  const auto with = [](auto change) {
    return refusal_of([&](GgufBuilder& f) { change(f.tensors()[1]); });
  };
  EXPECT_EQ(with([](Tensor& t) { t.name = "a"; }), "tensor 'a': is there twice");
  EXPECT_EQ(with([](Tensor& t) { t.dims = {}; }), "tensor 'b': has 0 dimensions, expected 1 to 4");
  EXPECT_EQ(with([](Tensor& t) {
              t.dims = {1, 1, 1, 1, 8};
            }),
            "tensor 'b': has 5 dimensions, expected 1 to 4");
  EXPECT_EQ(with([](Tensor& t) {
              t.dims = {0, 8};
            }),
            "tensor 'b': has a dimension of 0, expected a number from 1 on");
  EXPECT_EQ(with([](Tensor& t) {
              t.dims = {uint64_t{1} << 39, uint64_t{1} << 39};
            }),
            "tensor 'b': has too many numbers");
  EXPECT_TRUE(has(with([](Tensor& t) { t.type = 16; }),
                  "tensor 'b': has the type IQ2_XXS, expected F32, F16"));
  EXPECT_TRUE(has(with([](Tensor& t) { t.type = 777; }), "tensor 'b': has the type 777"));
  EXPECT_EQ(with([](Tensor& t) { t.type = 12; }),
            "tensor 'b': has rows of 8 numbers, expected a multiple of 256 for Q4_K");
  EXPECT_TRUE(has(with([](Tensor& t) { t.dims = {1000}; }),
                  "tensor 'b': has 4000 bytes at the offset 32 of the data, which has 64 bytes"));
  const auto placed = [&](uint64_t offset) {
    return with([&](Tensor& t) { t.offset = offset, t.placed = true; });
  };
  EXPECT_EQ(placed(0), "tensor 'b': overlaps the tensor 'a'");
  EXPECT_TRUE(has(placed(8), "tensor 'b': has the offset 8, expected a multiple of 32"));
  EXPECT_TRUE(has(placed(~uint64_t{0} - 31), "tensor 'b': has 32 bytes at the offset"));
}

TEST(GgufFile, TensorsMayBeAlignedOtherwise) {
  GgufBuilder file = two_tensors();
  file.alignment = 64;
  file.set_number("general.alignment", 64);
  file.tensors()[1].bytes[4] = '\1';
  const std::string bytes = file.finish();
  const GgufFile parsed = parse(bytes).value();
  EXPECT_EQ(parsed.find_tensor("a")->shape, (Shape{2, 4}));
  EXPECT_EQ(parsed.find_tensor("b")->bytes[4], std::byte{1});
}

}  // namespace
}  // namespace trainyard
