// src/ops/recurrent.h: recurrent layers over sequences, ONNX LSTM and GRU with layout 1 (batch
// first), one direction and the usual activations.
// Inputs      x [N, T, F]; w [G H, F]; r [G H, H]; wb, rb [G H], both or neither. G is 4 for LSTM
//             (gates i, f, g, o) and 3 for GRU (r, z, n): PyTorch's order, which is not ONNX's.
// Outputs     y [N, T, H]; y_h [N, H], the state after the last step; gates [N, T, G H] and state
//             [N, T, H], saved for the backward pass (kernels/recurrent.h).
// Attributes  hidden_size H; direction: forward or reverse; linear_before_reset of GRU is 1.
// Gradients   all inputs, assigned; backpropagation passes through all steps.
// Refuses     other ranks and types, empty tensors, sizes that do not fit together, one bias alone.
// Kernels     recurrent_forward, recurrent_backward (kernels/recurrent.h)
#pragma once

#include "src/graph/op.h"

namespace trainyard {

const Op* lstm_op();  // "LSTM"
const Op*
lstm_grad_op();      // "LSTMGrad": (x, w, r, y, gates, state, dy, dy_h) -> dx, dw, dr, dwb, drb
const Op* gru_op();  // "GRU"
const Op* gru_grad_op();  // "GRUGrad"

}  // namespace trainyard
