// client/cli/shorten.h: names in a column that is too narrow for them.
#pragma once

#include <string>
#include <string_view>

namespace trainyard::cli {

/// Safe text (terminal.h) of at most `width` columns. Omits the middle, which names of deep blocks
/// share.
std::string shorten(std::string_view text, int width, bool utf8);

}  // namespace trainyard::cli
