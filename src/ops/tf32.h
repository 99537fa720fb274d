// src/ops/tf32.h: the attribute that allows a backend to round the F32 operands of products to
// TF32, which has 11 significant bits and the range of F32; sums stay F32. A pass sets it
// (src/passes/assign_precision.h). Backends without TF32 instructions compute in F32.
#pragma once

#include <string_view>

#include "src/graph/graph.h"

namespace trainyard {

inline constexpr std::string_view kTf32Attribute = "tf32";

inline bool allows_tf32(const Node& node) {
  return node.attributes.get_int(kTf32Attribute, 0) != 0;
}

}  // namespace trainyard
