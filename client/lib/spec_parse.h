// client/lib/spec_parse.h: the text of a spec to the tree of spec_document.h, with what that header
// says is refused. YAML is yaml-cpp's; JSON is read here, because no library tells the place of a
// value.
#pragma once

#include <string_view>
#include <vector>

#include "client/lib/spec_document.h"

namespace trainyard::client {

/// What is wrong is added to `problems`, with `source` in its places; the value is then incomplete.
SpecValue parse_spec_text(std::string_view text, int source, std::vector<SpecProblem>& problems);

}  // namespace trainyard::client
