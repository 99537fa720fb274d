#include "src/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace trainyard {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // 0x1edc6f41 with its bits reversed

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

#if defined(__x86_64__)
// Advances the CRC register over kLaneBytes zero bytes. The new register is a linear function of
// the old one, so it is the exclusive or of one table entry per byte of the old register.
constexpr size_t kLaneBytes = 1024;
struct LaneShift {
  std::array<std::array<uint32_t, 256>, 4> table{};
  LaneShift() {
    std::array<uint32_t, 32> bits{};
    for (size_t bit = 0; bit < bits.size(); ++bit) {
      uint32_t crc = uint32_t{1} << bit;
      for (size_t i = 0; i < kLaneBytes; ++i) crc = (crc >> 8) ^ kTable[crc & 0xff];
      bits[bit] = crc;
    }
    for (size_t byte = 0; byte < table.size(); ++byte) {
      for (size_t value = 0; value < table[byte].size(); ++value) {
        for (size_t bit = 0; bit < 8; ++bit) {
          if ((value >> bit & 1) != 0) table[byte][value] ^= bits[8 * byte + bit];
        }
      }
    }
  }
  uint32_t operator()(uint32_t crc) const {
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^
           table[3][crc >> 24];
  }
};

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(std::span<const std::byte> bytes,
                                                        uint32_t crc) {
  uint64_t state = ~crc;
  const std::byte* p = bytes.data();
  size_t left = bytes.size();
  // The instruction has a latency of three cycles and a throughput of one per cycle, so three
  // independent lanes keep its unit busy.
  if (left >= 3 * kLaneBytes) {
    static const LaneShift shift;
    for (; left >= 3 * kLaneBytes; left -= 3 * kLaneBytes, p += 3 * kLaneBytes) {
      uint64_t second = 0, third = 0;
      for (size_t i = 0; i < kLaneBytes; i += 8) {
        uint64_t words[3];
        for (size_t lane = 0; lane < 3; ++lane) {
          std::memcpy(&words[lane], p + lane * kLaneBytes + i, sizeof words[lane]);
        }
        state = _mm_crc32_u64(state, words[0]);
        second = _mm_crc32_u64(second, words[1]);
        third = _mm_crc32_u64(third, words[2]);
      }
      state = shift(shift(static_cast<uint32_t>(state)) ^ static_cast<uint32_t>(second)) ^
              static_cast<uint32_t>(third);
    }
  }
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    state = _mm_crc32_u64(state, word);
  }
  auto state32 = static_cast<uint32_t>(state);
  for (; left > 0; --left, ++p) state32 = _mm_crc32_u8(state32, static_cast<uint8_t>(*p));
  return ~state32;
}
#endif

}  // namespace

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t crc) {
  crc = ~crc;
  for (const std::byte b : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint32_t>(b)) & 0xff];
  }
  return ~crc;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_sse42(bytes, crc);
#endif
  return crc32c_portable(bytes, crc);
}

}  // namespace trainyard
