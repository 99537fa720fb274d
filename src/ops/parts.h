// src/ops/parts.h: the simpler ops of which a fused op consists. A backend runs these if it has no
// kernel for the fused op, because such a kernel would not be faster. Graphs can therefore be fused
// in the same way for every device, and a plan does not depend on the device.
#pragma once

#include <string_view>
#include <vector>

#include "src/graph/op.h"

namespace trainyard {

/// Returns nodes that together compute the same as `node`, run one after another on its inputs and
/// outputs. Some work in place on an output. Empty if the op does not consist of others.
std::vector<Node> parts_of(const Node& node);
bool has_parts(std::string_view op_type);

}  // namespace trainyard
