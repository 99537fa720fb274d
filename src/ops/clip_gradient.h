// src/ops/clip_gradient.h: a gradient times a number, then cut to [-bound, bound].
// Inputs      g; scale [1], optional, of its type: GradientNorm's.       Output  y, as g
// Attributes  bound; 0, the default, cuts nothing.
// Refuses     a negative bound.
// Kernels     clip_gradient (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* clip_gradient_op();  // "ClipGradient"

}  // namespace trainyard
