// src/ops/add.h: c = a + b, without broadcasting.
// Inputs     a, b, of one shape.    Output  c, as a.
// Saves      nothing.
// Gradients  both inputs, each is the gradient of c itself: no kernel.
// Refuses    shapes or types that differ.
// Kernels    add (kernels/elementwise.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* add_op();  // "Add"

}  // namespace trainyard
