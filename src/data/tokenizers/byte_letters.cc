#include "src/data/tokenizers/byte_letters.h"

#include <array>

#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
         (byte >= 0xae && byte <= 0xff);
}

constexpr int kLetterEnd = 0x144;  // 68 bytes do not stand for themselves

constexpr std::array<char32_t, 256> make_letters() {
  std::array<char32_t, 256> letters{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    letters[static_cast<size_t>(byte)] =
        stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return letters;
}
constexpr std::array<char32_t, 256> kLetters = make_letters();

constexpr std::array<int16_t, kLetterEnd> make_bytes() {
  std::array<int16_t, kLetterEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (size_t byte = 0; byte < 256; ++byte) bytes[kLetters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
constexpr std::array<int16_t, kLetterEnd> kBytes = make_bytes();

}  // namespace

char32_t letter_of_byte(uint8_t byte) { return kLetters[byte]; }

int byte_of_letter(char32_t letter) { return letter < kLetterEnd ? kBytes[letter] : -1; }

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string bytes;
  while (!letters.empty()) {
    const int byte = byte_of_letter(take_code_point(letters));
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

std::string letters_of_bytes(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) append_utf8(letters, letter_of_byte(static_cast<uint8_t>(byte)));
  return letters;
}

}  // namespace trainyard
