// src/ops/gradient_norm.h: the global norm of all gradients, and what clipping multiplies them by.
// Inputs      gradients, any number of any shapes, one type.
// Outputs     norm [1]; scale [1], optional: min(1, max_norm / (norm + 1e-6)).
// Attributes  max_norm; 0, the default, clips nothing.
// Refuses     no gradient; types that differ.
// Kernels     gradient_norm (kernels/gradient.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* gradient_norm_op();  // "GradientNorm"

}  // namespace trainyard
