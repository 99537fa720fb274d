// proto/spec/parse.h: the text of a spec to the tree of document.h, with what that header
// says is refused. YAML is yaml-cpp's; JSON is read here, because no library tells the place of a
// value.
#pragma once

#include <string_view>
#include <vector>

#include "proto/spec/document.h"

namespace trainyard::spec {

/// Parses a text. Adds each fault to `problems`, at a position whose source is `source`; the value
/// is then incomplete.
Value parse_text(std::string_view text, int source, std::vector<Problem>& problems);

}  // namespace trainyard::spec
