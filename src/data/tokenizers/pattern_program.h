// src/data/tokenizers/pattern_program.h: a pattern as a list of operations for a matcher that goes
// back to another alternative where it fails.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/tokenizers/character_set.h"

namespace trainyard {

struct PatternOp {
  enum class Kind : uint8_t {
    kCharacter,  // a character of set `a`
    kRepeat,     // from `low` to `high` characters of set `a`, as many as possible
    kRepeatAll,  // the same, never given back
    kSplit,      // continue at `a`, and at `b` if that fails
    kJump,       // continue at `a`
    kAhead,      // the text ahead matches the operations from the next one on; continue at `a`
    kNotAhead,   // it does not
    kBehind,     // the character before is one of set `a`; `low` 1: there is none or it is not
    kAtomic,     // match the operations from the next one on, and never go back into them; at `a`
    kLineBegin,  // at the begin or after a line feed
    kLineEnd,    // at the end or before a line feed
    kTextBegin,
    kTextEnd,
    kDone,  // of the pattern, or of the operations of kAhead, kNotAhead and kAtomic
  };
  Kind kind;
  uint32_t a = 0, b = 0;
  uint32_t low = 0, high = 0;
};

struct PatternProgram {
  std::vector<PatternOp> ops;
  std::vector<CharacterSet> sets;
};

/// Refusal: INVALID_ARGUMENT with the reason as the message.
Result<PatternProgram> parse_pattern(std::string_view expression);

}  // namespace trainyard
