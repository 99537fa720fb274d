// client/cli/shorten.h: shortens names that are too long for a column.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::cli {

/// Escapes the text (safe_text()) and shortens it to at most `width` columns. Omits the middle,
/// which names in deep blocks have in common.
std::string shorten(std::string_view text, int width, bool utf8);

}  // namespace trainyard::cli
