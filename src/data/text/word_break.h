// src/data/text/word_break.h: divides text into words by Unicode's default rules (Unicode Standard
// Annex #29, "Unicode Text Segmentation", section 4).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace trainyard {

/// The classes of code points: the values of the property Word_Break, and parts of its value Other.
/// The table stores them in this order (scripts/make_word_breaks).
enum class WordBreak : uint8_t {
  kOther,
  kNewline,  // also carriage return and line feed
  kExtend,
  kZeroWidthJoiner,
  kFormat,
  kRegionalIndicator,
  kKatakana,
  kHebrewLetter,
  kLetter,
  kSingleQuote,
  kDoubleQuote,
  kMidNumLet,
  kMidLetter,
  kMidNum,
  kNumeric,
  kExtendNumLet,
  kPictograph,          // Extended_Pictographic
  kPictographicLetter,  // a letter that is Extended_Pictographic, too
  kAlone,               // another letter or number, such as an ideograph: a word by itself
};

WordBreak word_break_of(char32_t code_point);

/// Returns the version of Unicode to which the classes belong: "15.0.0".
std::string_view word_break_version();

/// Returns the code points at which another class begins, each times 32 plus its class.
std::span<const uint32_t> word_break_starts();

/// Calls visit(segment) for each segment of a well-formed UTF-8 text between two word boundaries
/// that contains a letter, a number or an emoji, in order, until it returns false.
void visit_word_segments(std::string_view text,
                         const std::function<bool(std::string_view segment)>& visit);

/// Returns a segment's word: in lower case and NFC, with ' for the apostrophe U+2019, and without
/// invisible characters (Format, and the variation selectors U+FE0E and U+FE0F).
std::string word_of(std::string_view segment);

}  // namespace trainyard
