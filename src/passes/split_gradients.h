// src/passes/split_gradients.h: separates gradients of weights from those of activations, so that
// they can run in two lanes (src/plan/lanes.h):
//
//   GemmGrad -> dx, dw, db       becomes   GemmGrad -> dw, db and GemmGrad -> dx, in this order;
//                                          also for Conv and ConvTranspose
//   GeluGemmGrad, ReluGemmGrad   likewise; only dx remains with the activation
//   ReluConvGrad -> dx, dw, db, dpre   becomes   ReluConvGrad -> dx, db, dpre and ConvGrad -> dw
//
// Constants, such as the gradient of the loss, move to the front.
//
// Kernels and bits stay the same, and no launch is added: a product's gradient that narrows dy once
// for both results is not split.
#pragma once

#include "src/graph/graph.h"

namespace trainyard {

void split_gradients(Graph& graph);

}  // namespace trainyard
