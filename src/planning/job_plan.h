// src/planning/job_plan.h: everything that can be known about a job before it runs. Pure: only
// graph code, no kernels and no device.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/schema.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/plan/device_traits.h"
#include "src/plan/program.h"

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

/// Checks everything that can be checked without the data's content, builds and compiles the
/// training program: the daemon calls it at submit, the worker before it starts. Refusals name
/// fields of the spec. `ranks` is the spec's resources.gpus, `traits` Backend::traits() of
/// the devices: with it the plan has the bytes that they will use. CANCELLED/STOPPED soon
/// after `stop` is requested.
Result<RunPlan> plan_run(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                         int64_t ranks = 1, DeviceTraits traits = {}, std::stop_token stop = {});

}  // namespace trainyard
