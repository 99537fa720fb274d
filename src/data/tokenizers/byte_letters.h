// src/data/tokenizers/byte_letters.h: the letters by which the tokens of GPT-2, and of all
// tokenizers of bytes since, write the 256 bytes: printable characters of Latin-1 stand for
// themselves, the others are U+0100 and following, so that a blank is "Ġ".
//
// Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainyard {

char32_t letter_of_byte(uint8_t byte);
/// Returns -1 for a letter that stands for no byte.
int byte_of_letter(char32_t letter);

/// Returns the bytes that a token's letters stand for; nullopt if one of them stands for none.
std::optional<std::string> bytes_of_letters(std::string_view letters);
std::string letters_of_bytes(std::string_view bytes);

}  // namespace trainyard
