// src/ops/clip_gradient.h: multiplies a gradient by a number, then clamps it to [-bound, bound].
// Inputs      g; scale [1] of GradientNorm, optional, of g's type.       Output  y, as g
// Attributes  bound; 0, the default, clamps nothing.
// Refuses     a negative bound.
// Kernels     clip_gradient (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* clip_gradient_op();  // "ClipGradient"

}  // namespace trainyard
