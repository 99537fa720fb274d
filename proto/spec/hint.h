// proto/spec/hint.h: what people mean who write values as other languages do.
#pragma once

#include <string>
#include <vector>

#include "proto/spec/document.h"

namespace trainyard::spec {

/// Between braces a comma ends a value: `{learning_rate: 0,01}` has a key `01`, `{hidden: (8, 8)}`
/// a key `8)`. Puts such keys back into the value before them, for messages that show what was
/// written.
std::vector<Entry> rejoined(const std::vector<Entry>& entries);

/// In place of a text that is no number: "a number with a decimal point: 0.5" for "0,5".
std::string number_expected(const std::string& text);
/// Behind "a whole number": " without separators: 1000" for "1,000"; else empty.
std::string whole_number_hint(const std::string& text);
/// "; a list has square brackets: [3, 3]" for "(3, 3)"; else empty.
std::string list_hint(const std::string& text);

}  // namespace trainyard::spec
