// proto/spec/parse.h: parses the text of a spec into the tree of document.h, and refuses what that
// header lists. yaml-cpp parses YAML; JSON is parsed here, because no library reports the positions
// of values.
#pragma once

#include <string_view>
#include <vector>

#include "proto/spec/document.h"

namespace trainyard::spec {

/// Parses a text. Adds each fault to `problems`, at a position whose source is `source`; the
/// returned value is then incomplete.
Value parse_text(std::string_view text, int source, std::vector<Problem>& problems);

}  // namespace trainyard::spec
