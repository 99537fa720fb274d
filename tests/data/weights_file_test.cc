// The tests fail if half-precision numbers are converted wrongly, a data type of the format is
// refused or misread, or a false header is accepted.
#include "src/checkpoint/weights_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/checkpoint/safetensors.h"
#include "tests/data/temporary_folder.h"

namespace trainyard {
namespace {

std::string file_of(const std::string& header, std::string_view data) {
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size() & 0xff);
  text[1] = static_cast<char>(header.size() >> 8);
  return text + header + std::string(data);
}

template <typename T>
std::string_view raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Result<WeightsFile> parse_weights(const std::string& file) {
  return WeightsFile::parse(std::as_bytes(std::span(file.data(), file.size())));
}

// The definition of IEEE 754: (-1)^s 2^(e - 15) (1 + f / 1024), or (-1)^s (f / 1024) 2^-14 if e is
// 0.
TEST(WeightsFile, EveryHalfIsWidenedExactly) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const std::vector<float> wide = to_f32("F16", std::as_bytes(std::span(all)));
  for (int i = 0; i < 65536; ++i) {
    const double sign = i >= 32768 ? -1 : 1;
    const int e = i >> 10 & 31, f = i & 1023;
    const float got = wide[static_cast<size_t>(i)];
    ASSERT_EQ(std::signbit(got), i >= 32768) << i;
    if (e == 31) {
      ASSERT_TRUE(f == 0 ? std::isinf(got) : std::isnan(got)) << i;
    } else {
      const double expected =
          e == 0 ? std::ldexp(f / 1024.0, -14) : std::ldexp(1 + f / 1024.0, e - 15);
      ASSERT_EQ(static_cast<double>(got), sign * expected) << i;
    }
  }
}

TEST(WeightsFile, OtherTypesAreWidenedOrRounded) {
  const std::vector<uint16_t> bf16 = {0x3f80, 0xc000, 0x7f80, 0x0001};
  const std::vector<float> a = to_f32("BF16", std::as_bytes(std::span(bf16)));
  EXPECT_EQ(a[0], 1.0f);
  EXPECT_EQ(a[1], -2.0f);
  EXPECT_TRUE(std::isinf(a[2]));
  EXPECT_EQ(a[3], std::ldexp(1.0f, -133));
  const std::vector<double> f64 = {0.1, -3, 1e300};
  const std::vector<float> b = to_f32("F64", std::as_bytes(std::span(f64)));
  EXPECT_EQ(b[0], 0.1f);
  EXPECT_EQ(b[1], -3.0f);
  EXPECT_TRUE(std::isinf(b[2]));
  EXPECT_FALSE(converts_to_f32("I64"));
  EXPECT_FALSE(converts_to_f32("BOOL"));
}

TEST(WeightsFile, AcceptsEveryTypeOfTheFormat) {
  const std::string header = R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},)"
                             R"("b":{"dtype":"BOOL","shape":[1],"data_offsets":[6,7]},)"
                             R"("n":{"dtype":"I64","shape":[],"data_offsets":[7,15]}})";
  const std::string file = file_of(header, std::string(15, '\1'));
  const auto parsed = parse_weights(file);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ASSERT_EQ(parsed->tensors().size(), 3u);
  EXPECT_EQ(parsed->tensors()[0].dtype, "BF16");
  EXPECT_EQ(parsed->tensors()[0].shape, Shape({3}));
  EXPECT_EQ(parsed->bytes(2).size(), 8u);
  // Trainyard's own files have no such types, so a checkpoint with one is refused.
  const auto ours = SafetensorsFile::parse(std::as_bytes(std::span(file.data(), file.size())));
  ASSERT_FALSE(ours.ok());
  EXPECT_EQ(ours.error().metadata.at("rule"), "dtype_unsupported");
}

TEST(WeightsFile, WrongHeadersAreRefused) {
  const auto rule = [](const std::string& header, size_t bytes) {
    const auto parsed = parse_weights(file_of(header, std::string(bytes, '\0')));
    return parsed.ok() ? std::string("accepted") : parsed.error().metadata.at("rule");
  };
  EXPECT_EQ(rule(R"({"a":{"dtype":"F16","shape":[4],"data_offsets":[0,16]}})", 16), "bad_info");
  EXPECT_EQ(rule(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", 2),
            "dtype_unsupported");
  EXPECT_EQ(rule(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
                 R"("b":{"dtype":"F16","shape":[2],"data_offsets":[2,6]}})",
                 6),
            "bad_offset");
  EXPECT_EQ(
      rule(R"({"a":{"dtype":"F64","shape":[1099511627776,1048576],"data_offsets":[0,8]}})", 8),
      "overflow");
  EXPECT_FALSE(WeightsFile::open("/nowhere").ok());
}

}  // namespace
}  // namespace trainyard
