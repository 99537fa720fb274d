// src/onnx/import_attention.h: recognizes attention and RMS normalization, which exporters write as
// products, softmax and arithmetic, so that they become one layer each.
//
// The nodes before the last of a pattern have been imported already; their layers are left out of
// the model if nothing else reads them.
#pragma once

#include "src/onnx/import_table.h"

namespace trainyard::onnx {

/// If the node, a MatMul, is the last product of an attention, defines its output and returns true.
/// The scores may be scaled, and have the causal mask or none.
Result<bool> import_attention(NodeImport& n);

/// If the node, a Mul or Div, scales numbers by the root of their mean square, and a product with a
/// weight follows, defines the output of that product and returns true.
Result<bool> import_rms_norm(NodeImport& n);

}  // namespace trainyard::onnx
