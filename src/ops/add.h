// src/ops/add.h: c = a + b, broadcast as numpy does.
// Inputs     a, b, of shapes that broadcast.    Output  c, of the shape of both.
// Saves      nothing.
// Gradients  both inputs, each is the gradient of c itself, summed over what was repeated (SumTo).
// Refuses    shapes that do not broadcast, types that differ.
// Spread     what both are of: own, or both of a rank's classes.
// Kernels    add (kernels/elementwise.h), arithmetic of Add (kernels/arithmetic.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* add_op();  // "Add"

}  // namespace trainyard
