// proto/spec/hint.h: hints for people who write values in the syntax of other languages.
#pragma once

#include <string>
#include <vector>

#include "proto/spec/document.h"

namespace trainyard::spec {

/// Between braces a comma ends a value, so that `{learning_rate: 0,01}` has a key `01` and
/// `{hidden: (8, 8)}` a key `8)`. Joins such keys with the preceding value, so that messages show
/// what the user wrote.
std::vector<Entry> rejoined(const std::vector<Entry>& entries);

/// Describes the number expected instead of a text that is none: "a number with a decimal point:
/// 0.5" for "0,5".
std::string number_expected(const std::string& text);
/// Returns a suffix for "a whole number": " without separators: 1000" for "1,000"; else empty.
std::string whole_number_hint(const std::string& text);
/// Returns a hint about lists: "; a list has square brackets: [3, 3]" for "(3, 3)"; else empty.
std::string list_hint(const std::string& text);

}  // namespace trainyard::spec
