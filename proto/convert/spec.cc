#include "proto/convert/spec.h"

#include <algorithm>
#include <string>

#include "proto/convert/read_rows.h"
#include "proto/convert/run.h"
#include "proto/convert/spec_parts.h"
#include "src/base/violations.h"
#include "src/job/resources.h"

namespace trainyard {
namespace {

/// Checks that the rows of each batch can be divided among `count` devices; `what` describes them
/// in the message.
void check_divides(int count, const Recipe& recipe, const std::string& field,
                   const std::string& what, Violations& violations) {
  // Other faults of these two fields are reported by their own checks.
  if (recipe.accumulate_steps < 1 || recipe.batch_size % recipe.accumulate_steps != 0) return;
  const int64_t rows = recipe.micro_batch();
  if (rows < 1 || rows % count == 0) return;
  std::string divisors;
  for (int64_t n = 1; n <= std::min<int64_t>(rows, kRanksOfJobMax); ++n) {
    if (rows % n == 0) divisors += (divisors.empty() ? "" : ", ") + std::to_string(n);
  }
  violations.add("FIELD_OUT_OF_RANGE", field,
                 what + " does not divide " +
                     (recipe.accumulate_steps == 1
                          ? "recipe.batch_size " + std::to_string(rows)
                          : "the " + std::to_string(rows) +
                                " rows of recipe.batch_size over recipe.accumulate_steps") +
                     ", expected one of " + divisors);
}

/// Checks that several GPUs can share the rows of each batch.
void check_gpus(const ResourceSpec& resources, const Recipe& recipe, Violations& violations) {
  const int gpus = resources.gpus;
  if (gpus > 1 && resources.device != "gpu") {
    violations.add("FIELD_CONFLICT", "resources.gpus",
                   std::to_string(gpus) + " needs device: gpu, expected that or gpus: 1");
    return;
  }
  check_divides(gpus, recipe, "resources.gpus", std::to_string(gpus), violations);
}

/// Checks that several nodes of a cluster can share the rows of each batch.
void check_nodes(const ResourceSpec& resources, const Recipe& recipe, Violations& violations) {
  const int nodes = resources.nodes;
  const auto refuse = [&](const char* reason, const std::string& what) {
    violations.add(reason, "resources.nodes", std::to_string(nodes) + " " + what);
  };
  if (nodes == 1) return;
  if (resources.cluster.empty()) {
    return refuse("FIELD_CONFLICT", "needs resources.cluster; expected that or 1");
  }
  const int gpus = resources.gpus;
  if (nodes * gpus > kRanksOfJobMax) {
    return refuse("FIELD_OUT_OF_RANGE",
                  "nodes of " + std::to_string(gpus) + " GPUs are " + std::to_string(nodes * gpus) +
                      " in all, expected at most " + std::to_string(kRanksOfJobMax));
  }
  if (splits_layers(recipe.shard)) {
    violations.add("FIELD_CONFLICT", "resources.shard",
                   name_of(recipe.shard) +
                       " is for the GPUs of one node, whose links are fast enough for it; expected "
                       "parameters, optimizer or none, or resources.nodes: 1");
  }
  const std::string what = gpus == 1 ? std::to_string(nodes)
                                     : std::to_string(nodes) + " nodes of " + std::to_string(gpus) +
                                           " GPUs, " + std::to_string(nodes * gpus) + " in all,";
  check_divides(nodes * gpus, recipe, "resources.nodes", what, violations);
}

Shard to_shard(const v1::Resources& resources, Violations& violations) {
  Shard all = Shard::kNone;
  for (int i = 0; i < resources.shard_size(); ++i) {
    const std::string field = "resources.shard[" + std::to_string(i) + "]";
    switch (resources.shard(i)) {
      case v1::Resources::NONE:
        if (resources.shard_size() > 1) {
          violations.add(
              "FIELD_CONFLICT", field,
              "none cannot be combined with other values; expected either none or the others");
        }
        break;
      case v1::Resources::OPTIMIZER:
        all = all | Shard::kOptimizer;
        break;
      case v1::Resources::HEAD:
        all = all | Shard::kHead;
        break;
      case v1::Resources::PARAMETERS:
        all = all | Shard::kParameters;
        break;
      case v1::Resources::MLP:
        all = all | Shard::kMlp;
        break;
      default:
        violations.add("FIELD_UNSUPPORTED", field,
                       std::to_string(resources.shard(i)) +
                           " is not known, expected none, optimizer, head, parameters or mlp");
    }
  }
  return canonical(all);
}

}  // namespace

Result<EngineSpec> to_engine(const v1::JobSpec& spec) {
  Violations violations;
  EngineSpec out;
  if (!spec.has_model()) {
    violations.add("FIELD_REQUIRED", "model", "is missing, expected one of mlp, lenet5, layers");
  } else {
    out.model = to_model(spec.model(), violations);
  }
  if (!spec.has_recipe()) {
    violations.add("FIELD_REQUIRED", "recipe",
                   "is missing, expected epochs or steps, and an optimizer");
  } else {
    out.recipe = to_recipe(spec.recipe(), violations);
  }
  ResourceSpec resources;
  read_rows(spec.resources(), "resources.", resources, violations);
  check_gpus(resources, out.recipe, violations);
  out.recipe.shard = to_shard(spec.resources(), violations);
  check_nodes(resources, out.recipe, violations);
  if (spec.priority() < -kPriorityMax || spec.priority() > kPriorityMax) {
    violations.add("FIELD_OUT_OF_RANGE", "priority",
                   std::to_string(spec.priority()) + " is out of range, expected -100..100");
  }
  if (!violations.empty()) return violations.to_error();
  return out;
}

}  // namespace trainyard
