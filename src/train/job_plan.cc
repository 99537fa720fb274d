#include "src/train/job_plan.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "src/base/join.h"
#include "src/graph/op.h"
#include "src/train/programs.h"
#include "src/train/run_work.h"

namespace trainyard {
namespace {

constexpr int64_t kMicroBatchesMax = 1024;  // more would be tried for nothing

/// The forward node that a backward node belongs to: "conv1/grad", "conv1/grad_sum1",
/// "bn1.saved_mean/grad_sum1". Parts are taken off the end until a forward node is named.
int64_t row_of(const std::map<std::string, int64_t, std::less<>>& rows, std::string_view name) {
  while (true) {
    if (const auto it = rows.find(name); it != rows.end()) return it->second;
    const size_t cut = name.find_last_of("/.");
    if (cut == std::string_view::npos) return -1;
    name = name.substr(0, cut);
  }
}

std::vector<std::string> warnings_of(const Recipe& recipe, const RunShape& shape,
                                     const Graph& graph) {
  std::vector<std::string> warnings;
  const int64_t used = shape.steps_per_epoch * recipe.batch_size;
  if (const int64_t left = shape.train_rows - used; left * 10 >= shape.train_rows) {
    warnings.push_back(
        "each epoch leaves out " + std::to_string(left) + " of " +
        std::to_string(shape.train_rows) + " rows, which do not fill a batch of " +
        std::to_string(recipe.batch_size) +
        (recipe.shuffle ? "; different rows each time" : "; the same rows each time"));
  }
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
      warnings.push_back(node.name + " takes its statistics from the batch, and " +
                         (recipe.batch_size == 1 ? "recipe.batch_size is 1"
                                                 : "a device has 1 row of it at a time"));
      break;
    }
  }
  // By micro-batches a parameter is updated by another program, from its sum.
  std::set<std::string> updated;
  for (const Node& node : graph.nodes()) {
    for (const int64_t i : node.op->mutated_inputs()) {
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

/// What no other batch changes.
int64_t lasting_bytes(const MemoryBreakdown& memory) {
  return memory.parameter_bytes + memory.state_bytes + memory.optimizer_bytes;
}

/// The most units of a batch, below `all`, that need at most `limit_bytes`; 0: none do. Memory
/// grows nearly by the same amount with each unit, so the straight line between what fits and what
/// does not meets the limit close to the answer; every third step halves, in case it does not.
int64_t largest_fitting(int64_t all, const RunPlan& whole, int64_t limit_bytes,
                        const std::function<int64_t(int64_t)>& needs) {
  int64_t low = 0, high = all;  // low fits (or is 0), high does not
  int64_t low_bytes = lasting_bytes(whole.memory), high_bytes = whole.memory.total();
  for (int step = 1; low + 1 < high; ++step) {
    int64_t units = low + (high - low) / 2;
    if (step % 3 != 0 && high_bytes > low_bytes) {
      const double share = static_cast<double>(limit_bytes - low_bytes) /
                           static_cast<double>(high_bytes - low_bytes);
      units = low + static_cast<int64_t>(share * static_cast<double>(high - low));
      units = std::clamp(units, low + 1, high - 1);
    }
    const int64_t bytes = needs(units);
    (bytes <= limit_bytes ? low : high) = units;
    (bytes <= limit_bytes ? low_bytes : high_bytes) = bytes;
  }
  return low;
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
          row.parameter_count += graph.tensor(id).type.shape.elements();
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
  plan.layers = std::move(programs.train.layers);
  plan.warnings = warnings_of(recipe, shape, programs.train.program.graph);
  plan.dump = dump_of(programs.train.program, dump);
  return plan;
}

FitAdvice advise_fit(const ModelSpec& model, const Recipe& recipe, const DatasetSchema& schema,
                     int64_t limit_bytes, int64_t ranks, DeviceTraits traits,
                     const std::stop_token& stop) {
  const auto plan_with = [&](const auto& change) {
    Recipe changed = recipe;
    change(changed);
    return plan_run(model, changed, schema, ranks, traits, stop);
  };
  const auto needs = [&](const auto& change) {
    const Result<RunPlan> plan = plan_with(change);
    return plan.ok() ? plan->memory.total() : std::numeric_limits<int64_t>::max();
  };
  FitAdvice advice;
  const Result<RunPlan> whole = plan_with([](Recipe&) {});
  if (!whole.ok() || lasting_bytes(whole->memory) > limit_bytes) return advice;
  for (const Recompute r : {Recompute::kBlocks, Recompute::kFull}) {
    if (r <= recipe.recompute || advice.recompute != Recompute::kNone) continue;
    if (needs([&](Recipe& changed) { changed.recompute = r; }) <= limit_bytes) advice.recompute = r;
  }
  std::vector<int64_t> counts;  // of micro-batches, ascending
  for (int64_t k = recipe.accumulate_steps + 1; k <= std::min(recipe.batch_size, kMicroBatchesMax);
       ++k) {
    if (recipe.batch_size % (k * ranks) == 0) counts.push_back(k);
  }
  const auto fewest = std::ranges::partition_point(counts, [&](int64_t k) {
    return needs([&](Recipe& changed) { changed.accumulate_steps = k; }) > limit_bytes;
  });
  if (fewest != counts.end()) advice.accumulate_steps = *fewest;
  // In units that the micro-batches and the ranks divide.
  const int64_t unit = std::max<int64_t>(1, recipe.accumulate_steps * ranks);
  advice.batch_size =
      unit * largest_fitting(recipe.batch_size / unit, *whole, limit_bytes, [&](int64_t units) {
        return needs([&](Recipe& changed) { changed.batch_size = units * unit; });
      });
  if (stop.stop_requested()) return {};
  return advice;
}

std::string describe(const FitAdvice& advice) {
  std::vector<std::string> ways;
  if (advice.recompute != Recompute::kNone) {
    ways.push_back("recipe.recompute: " + std::string(name_of(advice.recompute)));
  }
  if (advice.accumulate_steps > 0) {
    ways.push_back("recipe.accumulate_steps: " + std::to_string(advice.accumulate_steps));
  }
  if (advice.batch_size > 0) {
    ways.push_back("recipe.batch_size: " + std::to_string(advice.batch_size));
  }
  if (ways.empty()) return "no batch_size fits; only a smaller model would";
  return joined(ways) + " would fit";
}

}  // namespace trainyard
