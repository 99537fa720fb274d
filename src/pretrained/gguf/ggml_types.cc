#include "src/pretrained/gguf/ggml_types.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "src/base/check.h"
#include "src/base/half.h"

namespace trainyard {
namespace {

uint8_t byte_at(const std::byte* bytes, int i) { return std::to_integer<uint8_t>(bytes[i]); }
int8_t signed_at(const std::byte* bytes, int i) { return static_cast<int8_t>(byte_at(bytes, i)); }

template <typename T>
T number_at(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}
float half_at(const std::byte* bytes) { return from_f16(number_at<uint16_t>(bytes)); }

void widen_f32(const std::byte* block, float* out) { *out = number_at<float>(block); }
void widen_f16(const std::byte* block, float* out) { *out = half_at(block); }
void widen_bf16(const std::byte* block, float* out) {
  *out = from_bf16(number_at<uint16_t>(block));
}

void widen_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(signed_at(block + 2, i));
}

/// The numbers of a block of 32: the low halves of 16 bytes, then the high ones. `high` has their
/// fifth bits.
template <typename Put>
void visit_nibbles(const std::byte* bytes, uint32_t high, Put put) {
  for (int i = 0; i < 16; ++i) {
    const uint8_t byte = byte_at(bytes, i);
    put(i, (byte & 0xf) | static_cast<int>(high >> i & 1) << 4);
    put(i + 16, byte >> 4 | static_cast<int>(high >> (i + 16) & 1) << 4);
  }
}

void widen_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  visit_nibbles(block + 2, 0, [&](int i, int q) { out[i] = d * static_cast<float>(q - 8); });
}
void widen_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  visit_nibbles(block + 4, 0, [&](int i, int q) { out[i] = d * static_cast<float>(q) + m; });
}
void widen_q5_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  visit_nibbles(block + 6, number_at<uint32_t>(block + 2),
                [&](int i, int q) { out[i] = d * static_cast<float>(q - 16); });
}
void widen_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  visit_nibbles(block + 8, number_at<uint32_t>(block + 4),
                [&](int i, int q) { out[i] = d * static_cast<float>(q) + m; });
}

/// Unpacks the eight scales and offsets of 6 bits from 12 bytes: the first four of each are the low
/// bits of bytes 0 to 7, whose two high bits complete the nibbles of the others in bytes 8 to 11.
struct SixBitScales {
  explicit SixBitScales(const std::byte* bytes) {
    for (int j = 0; j < 4; ++j) {
      const uint8_t a = byte_at(bytes, j), b = byte_at(bytes, j + 4), c = byte_at(bytes, j + 8);
      const auto at = static_cast<size_t>(j);
      scales[at] = static_cast<float>(a & 63);
      offsets[at] = static_cast<float>(b & 63);
      scales[at + 4] = static_cast<float>((c & 0xf) | (a >> 6) << 4);
      offsets[at + 4] = static_cast<float>(c >> 4 | (b >> 6) << 4);
    }
  }
  std::array<float, 8> scales{}, offsets{};
};

/// Q4_K, and with the fifth bits in `high` Q5_K. 32 bytes of `low` have the nibbles of 64 numbers;
/// bit j of high[l] belongs to number l of the j-th 32 numbers.
void widen_k_blocks(const std::byte* block, const std::byte* high, const std::byte* low,
                    float* out) {
  const float d = half_at(block), m = half_at(block + 2);
  const SixBitScales packed(block + 4);
  for (int j = 0; j < 8; ++j) {
    const float scale = d * packed.scales[static_cast<size_t>(j)];
    const float offset = m * packed.offsets[static_cast<size_t>(j)];
    const std::byte* const nibbles = low + j / 2 * 32;
    for (int l = 0; l < 32; ++l) {
      int q = byte_at(nibbles, l) >> (j % 2 * 4) & 0xf;
      if (high != nullptr) q |= (byte_at(high, l) >> j & 1) << 4;
      out[32 * j + l] = scale * static_cast<float>(q) - offset;
    }
  }
}
void widen_q4_k(const std::byte* block, float* out) {
  widen_k_blocks(block, nullptr, block + 16, out);
}
void widen_q5_k(const std::byte* block, float* out) {
  widen_k_blocks(block, block + 16, block + 48, out);
}

/// A block has two halves of 128 numbers. In each half, 64 bytes hold the low four bits of the
/// numbers, and 32 bytes hold their high two bits.
void widen_q6_k(const std::byte* block, float* out) {
  const float d = half_at(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::byte* const low = block + 64 * half;
    const std::byte* const high = block + 128 + 32 * half;
    const std::byte* const scales = block + 192 + 8 * half;
    for (int i = 0; i < 128; ++i) {
      const int part = i / 32, l = i % 32;
      const int nibble = byte_at(low, l + part % 2 * 32) >> (part / 2 * 4) & 0xf;
      const int q = (nibble | (byte_at(high, l) >> (2 * part) & 3) << 4) - 32;
      const float scale = d * static_cast<float>(signed_at(scales, i / 16));
      out[128 * half + i] = scale * static_cast<float>(q);
    }
  }
}

constexpr std::array kReadable = std::to_array<GgmlType>({
    {0, "F32", 1, 4, widen_f32},
    {1, "F16", 1, 2, widen_f16},
    {30, "BF16", 1, 2, widen_bf16},
    {8, "Q8_0", 32, 34, widen_q8_0},
    {2, "Q4_0", 32, 18, widen_q4_0},
    {3, "Q4_1", 32, 20, widen_q4_1},
    {6, "Q5_0", 32, 22, widen_q5_0},
    {7, "Q5_1", 32, 24, widen_q5_1},
    {12, "Q4_K", 256, 144, widen_q4_k},
    {13, "Q5_K", 256, 176, widen_q5_k},
    {14, "Q6_K", 256, 210, widen_q6_k},
});

/// The names of other types, for messages.
constexpr std::array kOthers = std::to_array<std::pair<uint32_t, std::string_view>>(
    {{9, "Q8_1"},     {10, "Q2_K"},  {11, "Q3_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"},
     {18, "IQ3_XXS"}, {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"},
     {24, "I8"},      {25, "I16"},   {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},
     {34, "TQ1_0"},   {35, "TQ2_0"}, {39, "MXFP4"}});

}  // namespace

const GgmlType* find_ggml_type(uint32_t id) {
  const auto* const type = std::ranges::find(kReadable, id, &GgmlType::id);
  return type == kReadable.end() ? nullptr : type;
}

std::string ggml_type_name(uint32_t id) {
  if (const GgmlType* type = find_ggml_type(id)) return std::string(type->name);
  const auto* const other = std::ranges::find(kOthers, id, [](const auto& o) { return o.first; });
  return other == kOthers.end() ? std::to_string(id) : std::string(other->second);
}

std::string readable_ggml_types() {
  std::string text;
  for (const GgmlType& type : kReadable) {
    const bool is_last = &type == &kReadable.back();
    text += (text.empty() ? "" : is_last ? " or " : ", ") + std::string(type.name);
  }
  return text;
}

void widen_blocks(const GgmlType& type, std::span<const std::byte> blocks, std::span<float> out) {
  const size_t count = blocks.size() / static_cast<size_t>(type.bytes);
  TRAINYARD_CHECK(count * static_cast<size_t>(type.block) == out.size(),
                  "there is a place for each number of the blocks");
  for (size_t i = 0; i < count; ++i) {
    type.widen_block(blocks.data() + i * static_cast<size_t>(type.bytes),
                     out.data() + i * static_cast<size_t>(type.block));
  }
}

}  // namespace trainyard
