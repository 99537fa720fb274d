// src/ops/parts.h: what a fused op is made of, for backends that have no kernel of its own for it
// because they gain nothing by one. So a graph is fused alike for every device, and a plan is made
// without knowing which it will be.
#pragma once

#include <string_view>
#include <vector>

#include "src/graph/op.h"

namespace trainyard {

/// Nodes that run one after another on the tensors of `node`, inputs and outputs, and give the
/// same. Some work in place on an output. Empty where the op is not made of others.
std::vector<Node> parts_of(const Node& node);
bool has_parts(std::string_view op_type);

}  // namespace trainyard
