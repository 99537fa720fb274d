#include "server/planning/sharding_choice.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "proto/convert/plan.h"
#include "proto/convert/resources.h"
#include "proto/convert/run.h"
#include "server/planning/device_choice.h"
#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

/// What the spec leaves open, and what it forbids.
ShardingQuery query_of(const ShardingQuestion& question) {
  const v1::JobSpec& spec = question.spec;
  ShardingQuery query;
  query.limit_bytes = question.room.memory_bytes > 0 ? question.room.plan_bytes_max()
                                                     : std::numeric_limits<int64_t>::max();
  query.free = {spec.recipe().recompute() == v1::Recipe::RECOMPUTE_UNSPECIFIED,
                !spec.recipe().has_accumulate_steps(), spec.resources().shard().empty()};
  query.ranks = ranks_of(spec.resources());
  query.traits = question.traits;
  query.until_chosen = !question.all;
  query.check_shard = [&spec](Shard shard) -> Status {
    v1::JobSpec named = spec;
    for (const v1::Resources::Shard part : to_proto(shard)) {
      named.mutable_resources()->add_shard(part);
    }
    const Result<EngineSpec> engine = to_engine(named);
    return engine.ok() ? Status{} : Status{engine.error()};
  };
  return query;
}

/// The times of the sharding plans that fit; each is asked for once.
class Times {
 public:
  Times(const ShardingQuestion& question, const std::stop_token& stop)
      : question_(question), stop_(stop) {
    const auto& all = question.devices.devices;
    const auto it = std::ranges::find(all, question.room.device, &Device::name);
    if (it != all.end()) device_ = &*it;
  }

  std::optional<TimeRange> of(const Recipe& recipe, const RunPlan& plan) {
    if (device_ == nullptr) return std::nullopt;
    RunWork work = plan.work;
    const DeviceTraits traits = server::traits_on(device_->name);
    if (traits.processor != question_.traits.processor) {  // other passes run over its graph
      Result<RunPlan> there = plan_run(question_.engine.model, recipe, question_.schema,
                                       ranks_of(question_.spec.resources()), traits, stop_);
      if (!there.ok()) return std::nullopt;
      work = std::move(there->work);
    }
    if (nodes_of(question_.spec.resources()) > 1) work.spread_over_nodes();
    const Result<TimeRange> step = question_.step_time(*device_, work);
    if (!step.ok()) {
      unknown_ = step.error().message;
      return std::nullopt;
    }
    is_known_ = true;
    if (link_.empty()) link_ = assumed_link(work.step);
    return *step;
  }

  std::string basis() const {
    if (is_known_) {
      const std::string& cluster = question_.devices.cluster;
      return "Steps are forecast by the rates measured of " +
             (cluster.empty() ? device_->name
                              : "the nodes of " + std::string(kClusterPrefix) + cluster) +
             (link_.empty() ? "" : "; " + link_) + ".";
    }
    return unknown_.empty() ? "" : "How long steps take is not known: " + unknown_ + ".";
  }

 private:
  const ShardingQuestion& question_;
  const std::stop_token& stop_;
  const Device* device_ = nullptr;
  bool is_known_ = false;
  std::string link_, unknown_;
};

std::string left_out_text(const ShardingPlans& shardings) {
  if (shardings.left_out == 0) return "";
  return (shardings.left_out == 1 ? "1 more was"
                                  : std::to_string(shardings.left_out) + " more were") +
         std::string(" left out: a plan compiles at most ") + std::to_string(shardings.programs) +
         " programs.";
}

}  // namespace

Result<FoundShardings> find_sharding_plans(const ShardingQuestion& question,
                                           const std::stop_token& stop) {
  Times times(question, stop);
  ShardingQuery query = query_of(question);
  query.step_times = [&](const Recipe& recipe, const RunPlan& plan) {
    return times.of(recipe, plan);
  };
  FoundShardings found;
  ASSIGN_OR_RETURN(found.shardings,
                   enumerate_sharding_plans(question.engine.model, question.engine.recipe,
                                            question.schema, query, stop));
  const std::string left_out = left_out_text(found.shardings);
  found.basis = times.basis();
  if (!left_out.empty()) found.basis += (found.basis.empty() ? "" : " ") + left_out;
  return found;
}

std::optional<v1::FitChoice> choose_fit(v1::JobSpec& spec, EngineSpec& engine,
                                        const ShardingPlans& shardings,
                                        const v1::RunPlan& as_written, const MemoryRoom& room,
                                        DeviceTraits traits) {
  if (!shardings.chosen) return std::nullopt;
  const ShardingPlan& fit = *shardings.chosen;
  v1::Recipe& recipe = *spec.mutable_recipe();
  v1::FitChoice choice;
  const int64_t bytes_as_written = server::bytes_on(traits, as_written.memory());
  choice.set_bytes_as_written(bytes_as_written + room.overhead_bytes);
  choice.set_flops_as_written(as_written.flops_per_step());
  std::vector<std::string> chosen;
  if (fit.recompute != engine.recipe.recompute) {
    choice.set_recompute(to_proto(fit.recompute));
    recipe.set_recompute(choice.recompute());
    chosen.push_back("recipe.recompute: " + std::string(name_of(fit.recompute)));
  }
  if (fit.accumulate_steps != engine.recipe.accumulate_steps) {
    choice.set_accumulate_steps(fit.accumulate_steps);
    recipe.set_accumulate_steps(fit.accumulate_steps);
    chosen.push_back("recipe.accumulate_steps: " + std::to_string(fit.accumulate_steps));
  }
  if (fit.shard != engine.recipe.shard) {
    for (const v1::Resources::Shard part : to_proto(fit.shard)) choice.add_shard(part);
    *spec.mutable_resources()->mutable_shard() = choice.shard();
    chosen.push_back("resources.shard: " + name_of(fit.shard));
  }
  const bool rounds = choice.accumulate_steps() > 0 || !choice.shard().empty();
  set_sharding(fit, engine.recipe);

  choice.set_message(joined(chosen, " and ") + (chosen.size() == 1 ? " was" : " were") + " chosen" +
                     (shardings.by_forecast ? " by forecast" : "") + ": as written, " +
                     shortage_text(bytes_as_written, room) + ". The result is the same" +
                     (rounds ? " but for roundings" : " to the bit"));
  return choice;
}

void set_sharding_plans(const FoundShardings& found, const MemoryRoom& room, v1::JobPlan& plan) {
  for (const ShardingRow& row : found.shardings.rows) {
    v1::ShardingRow& to = *plan.add_sharding_plans();
    to = to_proto(row);
    if (row.bytes > 0) to.set_bytes(row.bytes + room.overhead_bytes);
    to.set_bytes_available(room.available_bytes());
  }
  plan.set_sharding_plans_basis(found.basis);
}

void add_workspace(int64_t workspace_bytes, v1::JobPlan& plan) {
  if (plan.sharding_plans().empty() || workspace_bytes <= 0) return;
  plan.set_sharding_plans_basis(
      plan.sharding_plans_basis() + (plan.sharding_plans_basis().empty() ? "" : " ") +
      "Memory is without the kernels' workspace, which for the job as it is "
      "planned is " +
      human_bytes(workspace_bytes) + ".");
}

}  // namespace trainyard::server
