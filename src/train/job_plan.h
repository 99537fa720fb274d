// src/train/job_plan.h: everything that can be known about a job before it runs. Pure: only graph
// code, no kernels and no device.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/train/trainer.h"

namespace trainyard {

/// One forward node as a user meets it: a layer of the model, or a part of one.
struct LayerRow {
  std::string name;
  std::string op;
  TensorType output;
  int64_t parameter_count = 0;  // a parameter that two layers share is counted with the first
  int64_t flops_forward = 0;    // of one batch
  int64_t flops_step = 0;       // forward and its gradients
};

/// The rows of a differentiated graph, in its order. Nodes that belong to no layer (updates, the
/// seed of the loss) are left out.
std::vector<LayerRow> layer_table(const Graph& graph);

enum class PlanDump : uint8_t { kNone, kGraph, kProgram, kMemory };
/// "graph", "program", "memory".
std::optional<PlanDump> find_plan_dump(std::string_view name);

struct JobPlan {
  RunPlan run;
  std::vector<LayerRow> layers;
  std::vector<std::string> warnings;  // sentences: what is allowed and rarely meant; beside run's
  std::string dump;                   // of the training program
};

/// What plan_run() says, and the rest of the answer of `trainyard plan`; the layers are those of
/// one of the `ranks`. `traits` as there.
Result<JobPlan> plan_job(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                         PlanDump dump, int64_t ranks = 1, DeviceTraits traits = {},
                         const std::stop_token& stop = {});

}  // namespace trainyard
