// src/planning/job_plan.h: plans a job: all facts about it that are known before it runs. Pure:
// uses graph code only, no kernels and no device.
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

/// A row of the layer table: a forward node, which is a layer of the model or a part of one.
struct LayerRow {
  std::string name;
  std::string op;
  TensorType output;
  int64_t parameter_count = 0;  // a parameter that two layers share is counted with the first
  int64_t flops_forward = 0;    // FLOPs of the forward pass for one batch
  int64_t flops_step = 0;       // FLOPs of the forward and the backward pass for one batch
};

/// Returns the layer table of a differentiated graph, in the graph's order. Nodes that belong to no
/// layer (updates, the seed of the loss) are left out.
std::vector<LayerRow> layer_table(const Graph& graph);

enum class PlanDump : uint8_t { kNone, kGraph, kProgram, kMemory };
/// Finds a dump by its name: "graph", "program" or "memory".
std::optional<PlanDump> find_plan_dump(std::string_view name);

struct JobPlan {
  RunPlan run;
  std::vector<LayerRow> layers;
  // Sentences about settings that are allowed but rarely intended, in addition to run.warnings.
  std::vector<std::string> warnings;
  std::string dump;  // the requested dump of the training program
};

/// Like plan_run(), and adds the other parts of the output of `trainyard plan`. The layers are
/// those of one rank.
Result<JobPlan> plan_job(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                         PlanDump dump, int64_t ranks = 1, DeviceTraits traits = {},
                         const std::stop_token& stop = {});

/// Checks everything that can be checked without the data's content, and builds and compiles the
/// training program. The daemon calls it at submit, the worker before it starts. Refusals name
/// fields of the spec. `ranks` is the number of devices that train together. `traits` is
/// Backend::traits() of these devices, so that the plan has the exact bytes that they use. Returns
/// CANCELLED/STOPPED soon after `stop` is requested.
Result<RunPlan> plan_run(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                         int64_t ranks = 1, DeviceTraits traits = {}, std::stop_token stop = {});

}  // namespace trainyard
