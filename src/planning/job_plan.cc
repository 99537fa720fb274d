#include "src/planning/job_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "kernels/math/candidates.h"
#include "src/graph/op.h"
#include "src/planning/programs.h"
#include "src/planning/run_warnings.h"
#include "src/planning/run_work.h"
#include "src/planning/whole_tables.h"

namespace trainyard {
namespace {

/// Returns the index of the forward node that a backward node belongs to ("conv1/grad",
/// "conv1/grad_sum1", "bn1.saved_mean/grad_sum1"), -1 if there is none. Parts are removed from the
/// end of the name until it is that of a forward node.
int64_t row_of(const std::map<std::string, int64_t, std::less<>>& rows, std::string_view name) {
  while (true) {
    if (const auto it = rows.find(name); it != rows.end()) return it->second;
    const size_t cut = name.find_last_of("/.");
    if (cut == std::string_view::npos) return -1;
    name = name.substr(0, cut);
  }
}

/// Warns if an epoch leaves out many rows, or if a batch contains rows more than once.
void warn_of_last_batch(const Recipe& recipe, const RunShape& shape,
                        std::vector<std::string>& warnings) {
  const std::string rows = std::to_string(shape.train_rows) + " rows";
  const int64_t left = recipe.drop_last ? shape.train_rows % recipe.batch_size : 0;
  if (left * 10 >= shape.train_rows) {
    warnings.push_back(
        "each epoch leaves out " + std::to_string(left) + " of " + rows +
        ", which do not fill a batch of " + std::to_string(recipe.batch_size) +
        (recipe.shuffle ? "; different rows each time" : "; the same rows each time") +
        "; recipe.drop_last: false trains on every row");
  }
  if (shape.train_rows <= recipe.batch_size / 2) {
    warnings.push_back("each batch of " + std::to_string(recipe.batch_size) + " has each of the " +
                       rows + " at least " + std::to_string(recipe.batch_size / shape.train_rows) +
                       " times; a recipe.batch_size of " + std::to_string(shape.train_rows) +
                       " computes them once");
  }
}

/// Returns true if a uniform distribution of classes has a higher mean log probability for the
/// training rows' classes than the log-uniform distribution, which assumes that classes are
/// numbered by falling frequency.
bool is_uniform_better(const std::vector<int64_t>& class_counts) {
  const auto classes = std::ssize(class_counts);
  const math::Candidates zipf = math::candidates_of(classes, true);
  double rows = 0, logs = 0;
  for (int64_t k = 0; k < classes; ++k) {
    const auto count = static_cast<double>(class_counts[static_cast<size_t>(k)]);
    rows += count;
    logs += count * std::log(zipf.probability(k));
  }
  return logs < -rows * std::log(static_cast<double>(classes));
}

void warn_of_class_order(const Objective& objective, std::vector<std::string>& warnings) {
  if (!objective.loss->samples || objective.interface.class_counts.empty() ||
      objective.attributes.get_string("distribution", "log_uniform") != "log_uniform" ||
      !is_uniform_better(objective.interface.class_counts)) {
    return;
  }
  warnings.push_back(
      "model.loss.sampled_softmax draws classes with low numbers most, but other classes are more "
      "frequent in the training rows: use distribution: uniform, or number the classes by falling "
      "frequency");
}

std::vector<std::string> warnings_of(const Recipe& recipe, const RunShape& shape,
                                     const Graph& graph) {
  std::vector<std::string> warnings;
  warn_of_last_batch(recipe, shape, warnings);
  warn_of_class_order(shape.objective, warnings);
  if (shape.validation_rows == 0 && shape.test_rows == 0) {
    warnings.push_back(
        "no rows are held out to measure the model on unseen data; set recipe.validation_split");
  }
  if (shape.steps_total < shape.steps_per_epoch) {
    warnings.push_back("the job ends after " + std::to_string(shape.steps_total) + " of the " +
                       std::to_string(shape.steps_per_epoch) +
                       " steps of an epoch: it never sees all rows");
  }
  if (shape.rank_batch == 1) {
    for (const Node& node : graph.nodes()) {
      if (node.op->type() != "BatchNormalization") continue;
      warnings.push_back(node.name + " computes its statistics over the batch, and " +
                         (recipe.batch_size == 1 ? "recipe.batch_size is 1"
                                                 : "a device has 1 row of it at a time"));
      break;
    }
  }
  // With micro-batches another program updates the parameters; this one updates their gradient
  // sums.
  std::set<std::string> updated;
  for (const Node& node : graph.nodes()) {
    for (const int64_t i : node.op->mutated_inputs(node)) {
      const TensorId id = node.inputs.at(static_cast<size_t>(i));
      if (id != kNoTensor) updated.insert(graph.tensor(id).name);
    }
  }
  const bool freezes = recipe.lora.rank > 0 ||
                       std::ranges::any_of(recipe.parameter_groups, [](const ParameterGroup& g) {
                         return g.freeze.value_or(false);
                       });
  for (const TensorInfo& t : graph.tensors()) {
    if (freezes || t.role != Role::kParameter || updated.contains(t.name) ||
        updated.contains(t.name + ".grad_sum")) {
      continue;
    }
    warnings.push_back(t.name + " is not trained: the loss does not depend on it");
  }
  if (recipe.lora.rank > 0 && recipe.initial_weights.source.empty()) {
    warnings.push_back(
        "recipe.lora adapts weights that are drawn at random, because there is no "
        "recipe.initial_weights");
  }
  return warnings;
}

std::string dump_of(const Program& program, PlanDump dump) {
  switch (dump) {
    case PlanDump::kGraph:
      return program.graph.dump();
    case PlanDump::kProgram:
      return program.dump_program();
    case PlanDump::kMemory:
      return program.dump_memory();
    case PlanDump::kNone:
      break;
  }
  return "";
}

}  // namespace

std::vector<LayerRow> layer_table(const Graph& graph) {
  std::vector<LayerRow> rows;
  std::map<std::string, int64_t, std::less<>> by_name;
  std::set<TensorId> counted;
  for (const Node& node : graph.nodes()) {
    const int64_t flops = node.op->cost(graph, node).flops;
    if (node.phase == Phase::kForward) {
      LayerRow row;
      row.name = node.name;
      row.op = node.op->type();
      if (!node.outputs.empty() && node.outputs[0] != kNoTensor) {
        row.output = graph.tensor(node.outputs[0]).type;
      }
      for (const TensorId id : node.inputs) {
        if (id == kNoTensor || graph.tensor(id).role != Role::kParameter) continue;
        if (counted.insert(id).second) {
          row.parameter_count += graph.tensor(id).whole_type().shape.elements();
        }
      }
      row.flops_forward = row.flops_step = flops;
      by_name[node.name] = static_cast<int64_t>(rows.size());
      rows.push_back(std::move(row));
    } else if (node.phase == Phase::kBackward) {
      const int64_t row = row_of(by_name, node.name);
      if (row >= 0) rows[static_cast<size_t>(row)].flops_step += flops;
    }
  }
  return rows;
}

std::optional<PlanDump> find_plan_dump(std::string_view name) {
  if (name == "graph") return PlanDump::kGraph;
  if (name == "program") return PlanDump::kProgram;
  if (name == "memory") return PlanDump::kMemory;
  return std::nullopt;
}

Result<JobPlan> plan_job(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                         PlanDump dump, int64_t ranks, DeviceTraits traits,
                         const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const RunShape shape, check_recipe(recipe, model, schema, ranks, traits));
  ASSIGN_OR_RETURN(RunPrograms programs, compile_run(model, recipe, schema, shape, 0, stop));
  JobPlan plan;
  plan.run = describe_run(programs, shape, recipe);
  plan.run.work = run_work(programs, shape, recipe, schema, plan.run);
  plan.run.warnings = run_warnings(plan.run, recipe, schema);
  plan.layers = std::move(programs.train.layers);
  plan.warnings = warnings_of(recipe, shape, programs.train.program.graph);
  warn_of_whole_tables(programs, recipe, shape.ranks, plan.warnings);
  plan.dump = dump_of(programs.train.program, dump);
  return plan;
}

Result<RunPlan> plan_run(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                         int64_t ranks, DeviceTraits traits, std::stop_token stop) {
  ASSIGN_OR_RETURN(const RunShape shape, check_recipe(recipe, model, schema, ranks, traits));
  ASSIGN_OR_RETURN(const RunPrograms programs, compile_run(model, recipe, schema, shape, 0, stop));
  RunPlan plan = describe_run(programs, shape, recipe);
  plan.work = run_work(programs, shape, recipe, schema, plan);
  plan.warnings = run_warnings(plan, recipe, schema);
  return plan;
}

}  // namespace trainyard
