#include "client/cli/shorten.h"

#include <algorithm>

#include "client/cli/terminal.h"

namespace trainyard::cli {

std::string shorten(std::string_view text, int width, bool utf8) {
  const std::string safe = safe_text(text);
  if (display_width(safe) <= width) return safe;
  const std::string dots = utf8 ? "\u2026" : "..";
  const auto keep = static_cast<size_t>(std::max(2, width - display_width(dots)));
  const size_t head = keep / 2;  // bytes are characters, since a layer's name is ASCII
  return safe.substr(0, head) + dots + safe.substr(safe.size() - (keep - head));
}

}  // namespace trainyard::cli
