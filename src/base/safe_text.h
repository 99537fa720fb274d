// src/base/safe_text.h: makes text from outside safe for a terminal and a log.
#pragma once

#include <string>
#include <string_view>

namespace trainyard {

/// Escapes control bytes, tabs, newlines, invalid UTF-8 and characters that are invisible or
/// reorder the line, as \xNN or \u{NNNN}. Everything else stays as it is.
std::string safe_text(std::string_view text);

}  // namespace trainyard
