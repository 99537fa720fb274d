// The tests fail if a file differs after writing and reading, a broken header is accepted (B36:
// every rule has a case here), or a truncated file or a flipped bit causes a crash.
#include "src/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "src/base/sha256.h"
#include "tests/data/faulty_files.h"
#include "tests/data/temporary_folder.h"

namespace trainyard {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::string file_with(std::string_view header, size_t data_bytes) {
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text + std::string(header) + std::string(data_bytes, '\1');
}

Result<SafetensorsFile> parse(std::string_view file) {
  return SafetensorsFile::parse(std::as_bytes(std::span(file.data(), file.size())));
}

std::string read_all(const std::filesystem::path& path) {
  return read_file(path, int64_t{1} << 30).value();
}

TEST(Safetensors, ComesBackAsWritten) {
  const TemporaryFolder folder;
  const std::vector<float> w = {1, -2.5f, std::numeric_limits<float>::infinity(), NAN, 0, 6};
  const std::vector<int64_t> step = {42};
  const std::vector<uint8_t> pixels = {1, 2, 3};
  const std::vector<float> none;
  const std::vector<TensorView> tensors = {
      {"z.weight", {{2, 3}, DType::kF32}, bytes_of(w)},
      {"step", {{}, DType::kI64}, bytes_of(step)},
      {"a \"quoted\" name", {{3}, DType::kU8}, bytes_of(pixels)},
      {"empty", {{0, 5}, DType::kF32}, bytes_of(none)},
  };
  const SafetensorsMetadata metadata = {{"step", "300"}, {"format", "trainyard-1"}};
  const auto digest = write_safetensors(local_files(), folder / "m", tensors, metadata);
  ASSERT_TRUE(digest.ok()) << digest.error().message;
  EXPECT_EQ(*digest, sha256_file(folder / "m").value());
  EXPECT_FALSE(std::filesystem::exists(folder / "m.tmp"));

  const auto file = SafetensorsFile::open(folder / "m");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->metadata(), metadata);
  ASSERT_EQ(file->tensors().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(file->tensors()[i].name, tensors[i].name);
    EXPECT_EQ(file->tensors()[i].type, tensors[i].type);
    ASSERT_EQ(file->tensors()[i].bytes.size(), tensors[i].bytes.size());
    EXPECT_TRUE(std::ranges::equal(file->tensors()[i].bytes, tensors[i].bytes));
    EXPECT_EQ(file->find(tensors[i].name), &file->tensors()[i]);
  }
  EXPECT_EQ(file->find("nothing"), nullptr);
  const std::string raw = read_all(folder / "m");
  uint64_t header = 0;
  std::memcpy(&header, raw.data(), 8);
  EXPECT_EQ(header % 8, 0u);
}

TEST(Safetensors, FindSurvivesAMove) {
  const TemporaryFolder folder;
  const std::vector<float> w = {1, 2};
  const TensorView t{"w", {{2}, DType::kF32}, bytes_of(w)};
  ASSERT_TRUE(write_safetensors(local_files(), folder / "m", std::span(&t, 1), {}).ok());
  auto file = SafetensorsFile::open(folder / "m");
  const SafetensorsFile moved = std::move(file).value();
  ASSERT_NE(moved.find("w"), nullptr);
  EXPECT_TRUE(std::ranges::equal(moved.find("w")->bytes, t.bytes));
}

TEST(Safetensors, AFullDiskLeavesNoHalfFile) {
  const TemporaryFolder folder;
  const float x = 1;
  const TensorView t{"x", {{1}, DType::kF32}, std::as_bytes(std::span(&x, 1))};
  for (int fail_at = 0; fail_at < 2; ++fail_at) {
    FaultyFiles files(fail_at);
    const auto digest = write_safetensors(files, folder / "m", std::span(&t, 1), {});
    ASSERT_FALSE(digest.ok());
    EXPECT_EQ(digest.error().reason, "STORAGE_FULL");
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << fail_at;
  }
}

TEST(Safetensors, EmptyFileOfTensorsIsValid) {
  EXPECT_TRUE(parse(file_with("{}", 0)).ok());
  EXPECT_TRUE(parse(file_with("{}      ", 0)).ok());
}

TEST(SafetensorsB36, EveryRuleIsRefusedByName) {
  const std::string ok = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  ASSERT_TRUE(parse(file_with(ok, 8)).ok());
  struct Case {
    std::string header;
    size_t data_bytes;
    const char* rule;
  };
  const auto entry = [](const char* name, const char* dtype, const char* shape, const char* range) {
    return std::string("\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + range + "}";
  };
  const auto one = [&](const char* dtype, const char* shape, const char* range) {
    return "{" + entry("a", dtype, shape, range) + "}";
  };
  const std::vector<Case> cases = {
      {"", 8, "bad_start"},
      {" " + ok, 8, "bad_start"},
      {"[]", 0, "bad_start"},
      {ok + "\n", 8, "bad_json"},
      {ok + "}", 8, "bad_json"},
      {ok.substr(0, ok.size() - 1), 8, "bad_json"},
      {"{\"a\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "bad_utf8"},
      {"{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("a", "F32", "[1]", "[4,8]") + "}", 8,
       "duplicate_key"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8,
       "duplicate_key"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, "duplicate_key"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "duplicate_key"},
      {R"({"__metadata__":{"k":1}})", 0, "bad_info"},
      {R"({"__metadata__":{"k":{}}})", 0, "bad_info"},
      {R"({"__metadata__":"k"})", 0, "bad_info"},
      {R"({"a":[1,2]})", 0, "bad_info"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", 8, "bad_info"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8, "bad_info"},
      {R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", 8, "bad_info"},
      {R"({"a":{"dtype":"F32","shape":{"a":2},"data_offsets":[0,8]}})", 8, "bad_info"},
      {R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})", 8, "bad_info"},
      {R"({"a":{"dtype":null,"shape":[2],"data_offsets":[0,8]}})", 8, "bad_info"},
      {R"({"a":{"dtype":["F32"],"shape":[2],"data_offsets":[0,8]}})", 8, "bad_info"},
      {one("F32", "[2.0]", "[0,8]"), 8, "bad_info"},
      {one("F32", "[-2]", "[0,8]"), 8, "bad_info"},
      {one("F32", "[true]", "[0,8]"), 8, "bad_info"},
      {one("F32", "[3]", "[0,8]"), 8, "bad_info"},
      {one("F32", "[2]", "[0,7]"), 8, "bad_info"},
      {one("BF16", "[4]", "[0,8]"), 8, "dtype_unsupported"},
      {one("F32", "[2]", "[8,0]"), 8, "bad_offset"},
      {one("F32", "[2]", "[0]"), 8, "bad_offset"},
      {one("F32", "[2]", "[0,8,16]"), 8, "bad_offset"},
      {one("F32", "[2]", "[0,-8]"), 8, "bad_offset"},
      {one("F32", "[2]", "[4,12]"), 12, "bad_offset"},  // a gap at the start
      {"{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[8,12]") + "}", 12,
       "bad_offset"},
      {"{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "F32", "[1]", "[4,8]") + "}", 8,
       "bad_offset"},
      {ok, 9, "incomplete_buffer"},  // trailing bytes
      {ok, 7, "incomplete_buffer"},
      {one("F32", "[4294967296,4294967296]", "[0,0]"), 0, "overflow"},
      {one("F32", "[18446744073709551615]", "[0,8]"), 8, "overflow"},
      {one("F32", "[99999999999999999999]", "[0,8]"), 8, "bad_info"},
      {std::string(1000, '{') + "}", 0, "bad_json"},
      {"{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", 0, "bad_info"},
  };
  for (const Case& c : cases) {
    const auto file = parse(file_with(c.header, c.data_bytes));
    ASSERT_FALSE(file.ok()) << c.header.substr(0, 200);
    EXPECT_EQ(file.error().reason, "MODEL_FILE_INVALID");
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(file.error().metadata.at("rule"), c.rule) << c.header.substr(0, 200) << "\n"
                                                        << file.error().message;
    EXPECT_LE(file.error().message.size(), 300u);
  }
}

TEST(SafetensorsB36, HeaderLengthIsCheckedBeforeItIsUsed) {
  std::string file = file_with("{}", 0);
  file[7] = '\x7f';  // at least 2^62
  EXPECT_EQ(parse(file).error().metadata.at("rule"), "header_too_large");
  file[7] = 0;
  file[1] = 1;  // a length of 258 in a file with 2 bytes of header
  EXPECT_EQ(parse(file).error().metadata.at("rule"), "bad_length");
  EXPECT_EQ(parse("1234567").error().metadata.at("rule"), "header_too_small");
  EXPECT_EQ(parse("").error().metadata.at("rule"), "header_too_small");
}

TEST(Safetensors, NoCutAndNoFlippedBitCrashes) {
  const TemporaryFolder folder;
  const std::vector<float> a = {1, 2, 3};
  const std::vector<int32_t> b = {4, 5};
  const std::vector<TensorView> tensors = {{"a", {{3}, DType::kF32}, bytes_of(a)},
                                           {"b", {{2, 1}, DType::kI32}, bytes_of(b)}};
  ASSERT_TRUE(write_safetensors(local_files(), folder / "m", tensors, {{"k", "v"}}).ok());
  const std::string whole = read_all(folder / "m");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse(std::string_view(whole).substr(0, size)).ok()) << size;
  }
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    const auto file = parse(flipped);  // accepted or refused; accepted tensors are within bounds
    if (!file.ok()) continue;
    unsigned sum = 0;
    for (const TensorView& t : file->tensors()) {
      EXPECT_EQ(static_cast<int64_t>(t.bytes.size()), t.type.bytes());
      for (const std::byte x : t.bytes) sum += std::to_integer<unsigned>(x);
    }
    EXPECT_GT(sum, 0u);
  }
}

TEST(Safetensors, NameThatIsNotUtf8IsRefusedWhenWritten) {
  const TemporaryFolder folder;
  const TensorView t{"\xff", {{0}, DType::kF32}, {}};
  const auto digest = write_safetensors(local_files(), folder / "m", std::span(&t, 1), {});
  ASSERT_FALSE(digest.ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace trainyard
