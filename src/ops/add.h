// src/ops/add.h: c = a + b, broadcast as in numpy.
// Inputs     a, b, of shapes that broadcast.    Output  c, of the broadcast shape.
// Saves      nothing.
// Gradients  both inputs: the gradient of c, summed over the axes that were broadcast (SumTo).
// Refuses    shapes that do not broadcast, types that differ.
// Spread     both inputs kOwn, or both kClasses; the output is as the inputs.
// Kernels    add (kernels/elementwise.h), arithmetic of Add (kernels/arithmetic.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* add_op();  // "Add"

}  // namespace trainyard
