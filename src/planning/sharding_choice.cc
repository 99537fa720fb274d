#include "src/planning/sharding_choice.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "src/base/join.h"
#include "src/base/text.h"
#include "src/planning/device_choice.h"
#include "src/planning/job_plan.h"

namespace trainyard {
namespace {

ShardingQuery query_of(const ShardingQuestion& question) {
  ShardingQuery query;
  if (question.room.memory_bytes > 0) query.limit_bytes = question.room.plan_bytes_max();
  query.free = question.job.free;
  query.ranks = question.job.ranks();
  query.traits = question.traits;
  query.until_chosen = !question.all;
  query.check_shard = question.job.check_shard;
  return query;
}

/// Predicts the step times of the sharding plans that fit. Collects what basis() reports.
class Times {
 public:
  Times(const ShardingQuestion& question, const std::stop_token& stop)
      : question_(question), stop_(stop) {
    const auto& all = question.machine.devices.devices;
    const auto it = std::ranges::find(all, question.room.device, &Device::name);
    if (it != all.end()) device_ = &*it;
  }

  std::optional<TimeRange> of(const Recipe& recipe, const RunPlan& plan) {
    if (device_ == nullptr) return std::nullopt;
    RunWork work = plan.work;
    const DeviceTraits traits = traits_on(device_->name);
    // Other passes change the graph for another processor, so the job is planned again for it.
    if (traits.processor != question_.traits.processor) {
      Result<RunPlan> there = plan_run(question_.job.model, recipe, question_.schema,
                                       question_.job.ranks(), traits, stop_);
      if (!there.ok()) return std::nullopt;
      work = std::move(there->work);
    }
    if (question_.job.nodes > 1) work.spread_over_nodes();
    const Result<TimeRange> step = question_.machine.step_time(*device_, work);
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
      const std::string& cluster = question_.machine.devices.cluster;
      return "Steps are forecast from the rates measured on " +
             (cluster.empty() ? device_->name : "the nodes of clusters/" + cluster) +
             (link_.empty() ? "" : "; " + link_) + ".";
    }
    return unknown_.empty() ? "" : "The time of a step is unknown: " + unknown_ + ".";
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
  found.room = question.room;
  ASSIGN_OR_RETURN(found.plans, enumerate_sharding_plans(question.job.model, question.recipe,
                                                         question.schema, query, stop));
  const std::string left_out = left_out_text(found.plans);
  found.basis = times.basis();
  if (!left_out.empty()) found.basis += (found.basis.empty() ? "" : " ") + left_out;
  return found;
}

std::optional<FitChoice> choose_fit(Recipe& recipe, const ShardingPlans& plans,
                                    const RunPlan& as_written, const MemoryRoom& room,
                                    DeviceTraits traits) {
  if (!plans.chosen) return std::nullopt;
  const ShardingPlan& fit = *plans.chosen;
  FitChoice choice;
  const int64_t plan_bytes = bytes_on(traits, as_written);
  choice.bytes_as_written = plan_bytes + room.overhead_bytes;
  choice.flops_as_written = as_written.flops_per_step;
  std::vector<std::string> chosen;
  if (fit.recompute != recipe.recompute) {
    choice.recompute = fit.recompute;
    chosen.push_back("recipe.recompute: " + std::string(name_of(fit.recompute)));
  }
  if (fit.accumulate_steps != recipe.accumulate_steps) {
    choice.accumulate_steps = fit.accumulate_steps;
    chosen.push_back("recipe.accumulate_steps: " + std::to_string(fit.accumulate_steps));
  }
  if (fit.shard != recipe.shard) {
    choice.shard = fit.shard;
    chosen.push_back("resources.shard: " + name_of(fit.shard));
  }
  set_sharding(fit, recipe);
  const bool rounds = choice.accumulate_steps || choice.shard;
  choice.message = joined(chosen, " and ") + (chosen.size() == 1 ? " was" : " were") + " chosen" +
                   (plans.by_forecast ? " by forecast" : "") + ": as written, " +
                   shortage_text(plan_bytes, room) + ". The result is the same" +
                   (rounds ? " except for rounding" : " to the bit");
  return choice;
}

std::string cost_text(const FitChoice& choice, int64_t flops_per_step) {
  const auto percent_more = [](double now, double before) {
    return std::lround(100 * now / before) - 100;
  };
  if (choice.step_seconds > 0 && choice.step_seconds_as_written > 0) {
    const auto more = percent_more(choice.step_seconds, choice.step_seconds_as_written);
    const std::string than = more > 0   ? std::to_string(more) + "% longer"
                             : more < 0 ? std::to_string(-more) + "% less"
                                        : "as long";
    return "; a step takes about " + than + " by forecast";
  }
  const auto more = percent_more(static_cast<double>(flops_per_step),
                                 static_cast<double>(choice.flops_as_written));
  return more > 0 ? "; a step computes " + std::to_string(more) + "% more" : "";
}

}  // namespace trainyard
