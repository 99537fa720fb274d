#include "proto/convert/spec.h"

#include <algorithm>
#include <string>

#include "proto/convert/run.h"
#include "proto/convert/spec_parts.h"
#include "src/base/violations.h"

namespace trainyard {
namespace {

constexpr int kRanksOfJobMax = 64;

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
void check_gpus(const v1::Resources& resources, const Recipe& recipe, Violations& violations) {
  const int gpus = resources.gpus();
  if (!resources.has_gpus()) return;
  if (gpus < 1 || gpus > kRanksOfJobMax) {
    violations.add(
        "FIELD_OUT_OF_RANGE", "resources.gpus",
        std::to_string(gpus) + " is out of range, expected 1.." + std::to_string(kRanksOfJobMax));
    return;
  }
  if (gpus > 1 && resources.device() != v1::Resources::GPU) {
    violations.add("FIELD_CONFLICT", "resources.gpus",
                   std::to_string(gpus) + " needs device: gpu, expected that or gpus: 1");
    return;
  }
  check_divides(gpus, recipe, "resources.gpus", std::to_string(gpus), violations);
}

/// Checks that several nodes of a cluster can share the rows of each batch.
void check_nodes(const v1::Resources& resources, const EngineSpec& spec, Violations& violations) {
  const Recipe& recipe = spec.recipe;
  if (!resources.has_nodes()) return;
  const int nodes = resources.nodes();
  const auto refuse = [&](const char* reason, const std::string& what) {
    violations.add(reason, "resources.nodes", std::to_string(nodes) + " " + what);
  };
  if (nodes < 1 || nodes > kRanksOfJobMax) {
    return refuse("FIELD_OUT_OF_RANGE",
                  "is out of range, expected 1.." + std::to_string(kRanksOfJobMax));
  }
  if (nodes == 1) return;
  if (resources.cluster().empty()) {
    return refuse("FIELD_CONFLICT", "needs resources.cluster; expected that or 1");
  }
  const int gpus = resources.has_gpus() ? resources.gpus() : 1;
  if (gpus < 1 || gpus > kRanksOfJobMax) return;  // the check of resources.gpus reports this
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
          violations.add("FIELD_CONFLICT", field,
                         "none stands alone, expected it without the others, or them without it");
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
  const v1::Resources& resources = spec.resources();
  if (!v1::Resources::Device_IsValid(resources.device())) {
    violations.add("FIELD_UNSUPPORTED", "resources.device",
                   std::to_string(resources.device()) + " is not known, expected auto, cpu or gpu");
  }
  if (resources.has_threads() && (resources.threads() < 1 || resources.threads() > 256)) {
    violations.add("FIELD_OUT_OF_RANGE", "resources.threads",
                   std::to_string(resources.threads()) + " is out of range, expected 1..256");
  }
  if (resources.has_time_limit_seconds() &&
      (resources.time_limit_seconds() < 1 || resources.time_limit_seconds() > kTimeLimitMax)) {
    violations.add("FIELD_OUT_OF_RANGE", "resources.time_limit_seconds",
                   std::to_string(resources.time_limit_seconds()) +
                       " is out of range, expected 1.." + std::to_string(kTimeLimitMax));
  }
  check_gpus(resources, out.recipe, violations);
  out.recipe.shard = to_shard(resources, violations);
  check_nodes(resources, out, violations);
  if (spec.priority() < -kPriorityMax || spec.priority() > kPriorityMax) {
    violations.add("FIELD_OUT_OF_RANGE", "priority",
                   std::to_string(spec.priority()) + " is out of range, expected -100..100");
  }
  if (!violations.empty()) return violations.to_error();
  return out;
}

}  // namespace trainyard
