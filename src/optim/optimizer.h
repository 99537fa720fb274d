// src/optim/optimizer.h: optimizers as update nodes, schedules as functions of the step.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/graph/graph.h"

namespace trainyard {

/// Names, defaults and formulas as in PyTorch's torch.optim (docs/optimizers.md).
struct OptimizerSpec {
  std::string type = "sgd";  // "sgd", "adam", "adamw"
  double learning_rate = 0.01;
  double momentum = 0;                                // sgd
  bool nesterov = false;                              // sgd; needs momentum > 0
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // adam, adamw
  double weight_decay = 0;  // sgd, adam: added to the gradient; adamw: decoupled
};

struct ScheduleSpec {
  std::string type = "constant";  // "constant", "step", "cosine"
  // Steps before any schedule: the rate climbs in equal parts from 0, which is never used, to
  // the learning rate: rate * (s + 1) / (warmup_steps + 1). The schedule counts from there.
  int64_t warmup_steps = 0;
  int64_t step_size = 0;         // step: every this many steps ...
  double gamma = 0.1;            // ... times gamma
  double min_learning_rate = 0;  // cosine: end value, reached at steps_total
};

/// Learning rate of step s (0-based) of steps_total.
double learning_rate_at(const ScheduleSpec& schedule, double base, int64_t step,
                        int64_t steps_total);

Status check_optimizer(const OptimizerSpec& spec, const ScheduleSpec& schedule);

struct UpdateInputs {
  TensorId learning_rate = kNoTensor;  // F32 [1], graph input
  TensorId step = kNoTensor;           // I64 [1], graph input, 0-based
};

/// Appends one update node (Phase::kUpdate) per parameter, and its optimizer state
/// ("<param>.momentum",
/// "<param>.exp_avg", "<param>.exp_avg_sq"). `step` may exist already (dropout) and is then shared.
UpdateInputs append_optimizer(Graph& graph, const OptimizerSpec& spec,
                              const std::map<TensorId, TensorId>& gradients, TensorId step);

}  // namespace trainyard
