#include "src/planning/planner.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/base/stop.h"
#include "src/base/text.h"
#include "src/planning/batch_choice.h"
#include "src/planning/weight_match.h"

namespace trainyard {
namespace {

/// Finds the device where the job could have the most memory. Fetches the memory of running jobs
/// only if `plan_bytes` does not fit otherwise, because most jobs fit into the free memory.
Result<MemoryRoom> find_room(const Machine& machine, DeviceWish wish, int32_t gpus,
                             int64_t plan_bytes) {
  const auto room_beside = [&](std::span<const JobMemory> job_memory) {
    return largest_room(wish, gpus, machine.devices, job_memory, machine.cpu_limit_bytes);
  };
  MemoryRoom least = room_beside({});
  if (least.holds(plan_bytes) || !machine.job_memory) return least;
  ASSIGN_OR_RETURN(const std::vector<JobMemory> job_memory, machine.job_memory());
  return room_beside(job_memory);
}

/// Plans without a resident dataset and adds a warning: batches then come from the host.
void leave_rows_on_host(JobPlan& plan) {
  plan.run.dataset_bytes = 0;
  plan.warnings.push_back(
      "the training rows do not fit on the GPU with the job: batches are copied from the host");
}

/// Returns the machine, or in `newer` a copy without the GPUs that cannot compute in the precision.
const Machine& machine_for(const Machine& machine, Precision precision,
                           std::optional<Machine>& newer) {
  if (!any_is_too_old(machine.devices, precision)) return machine;
  newer = machine;
  newer->devices = devices_for(std::move(newer->devices), precision);
  return *newer;
}

class Planning {
 public:
  Planning(const Machine& machine, const JobToPlan& job, const DatasetSchema& schema,
           const PlanOptions& options, const std::stop_token& stop)
      : machine_(machine), job_(job), schema_(schema), options_(options), stop_(stop) {
    planned_.recipe = job.recipe;
  }

  Result<PlannedRun> run(const std::optional<StartingTensors>& weights) {
    if (job_.batch_is_open) {
      if (Status s = choose_batch(); !s.ok()) return s.error();
    }
    planned_.device =
        choose_device(job_.wish, job_.gpus, planned_.recipe.batch_size, machine_.devices);
    planned_.traits = options_.devices == PlannedFor::kWhereItStarts
                          ? traits_on(planned_.device.device)
                          : traits_for(job_.wish, machine_.devices);
    if (Status s = plan(); !s.ok()) return s.error();
    std::optional<InitialWeightsReport> report;
    if (Status s = match(weights, report); !s.ok()) return s.error();
    if (Status s = check_satisfiable(job_.wish, job_.gpus, machine_.devices); !s.ok()) {
      return s.error();
    }
    if (Status s = fit(); !s.ok()) return s.error();
    if (report) report_pixels(*report);
    planned_.plan.run.initial_weights = std::move(report);
    report_batch();
    return std::move(planned_);
  }

 private:
  Result<std::shared_ptr<const RunPlan>> find_run_plan(const Recipe& recipe,
                                                       DeviceTraits traits) const {
    if (options_.find_run_plan) return options_.find_run_plan(recipe, traits);
    ASSIGN_OR_RETURN(RunPlan plan,
                     plan_run(job_.model, recipe, schema_, job_.ranks(), traits, stop_));
    return std::make_shared<const RunPlan>(std::move(plan));
  }

  /// Plans `planned_.recipe`.
  Status plan() {
    if (options_.with_layers) {
      ASSIGN_OR_RETURN(planned_.plan, plan_job(job_.model, planned_.recipe, schema_, options_.dump,
                                               job_.ranks(), planned_.traits, stop_));
    } else {
      ASSIGN_OR_RETURN(const auto run, find_run_plan(planned_.recipe, planned_.traits));
      planned_.plan.run = *run;
    }
    // Only a GPU keeps a resident dataset.
    const bool gpu = options_.devices == PlannedFor::kWhereItStarts
                         ? planned_.traits.processor == Processor::kGpu
                         : may_get_gpu(job_.wish, machine_.devices);
    if (!gpu) planned_.plan.run.dataset_bytes = 0;
    return {};
  }

  void report_pixels(const InitialWeightsReport& report) {
    std::string warning = pixel_warning(report, planned_.recipe, schema_);
    if (!warning.empty()) planned_.plan.run.warnings.push_back(std::move(warning));
  }

  Status match(const std::optional<StartingTensors>& weights,
               std::optional<InitialWeightsReport>& report) {
    if (!weights) return {};
    Result<InitialWeightsReport> matched =
        plan_initial_weights(job_.model, planned_.recipe, schema_, weights->tensors);
    if (matched.ok()) {
      report = std::move(matched).value();
    } else if (weights->must_match) {
      return matched.error();
    } else {
      planned_.lacks_weights = matched.error();
    }
    return {};
  }

  Status choose_batch() {
    // Kernels on a GPU need a workspace. Its size is unknown before a worker has prepared them, so
    // an eighth of the memory is reserved for it.
    constexpr int64_t kWorkspaceShare = 8;
    const Devices& devices = machine_.devices;
    const Device device = device_of(
        choose_device(job_.wish, job_.gpus, job_.recipe.batch_size, devices), job_.wish, devices);
    const bool cpu = device.kind == DeviceKind::kCpu;
    ASSIGN_OR_RETURN(MemoryRoom room, find_room(machine_, cpu ? DeviceWish::kCpu : DeviceWish::kGpu,
                                                job_.gpus, std::numeric_limits<int64_t>::max()));
    if (room.device.empty()) room = {device.name, device.memory_bytes, 0, device.overhead_bytes};
    const DeviceTraits traits = traits_of(cpu ? Processor::kCpu : Processor::kGpu);
    BatchSearch search;
    search.unit = job_.recipe.batch_size;
    if (room.memory_bytes > 0) {
      const int64_t workspace_bytes = cpu ? 0 : room.plan_bytes_max() / kWorkspaceShare;
      search.plan_bytes_max = std::max<int64_t>(1, room.plan_bytes_max() - workspace_bytes);
    }
    search.try_rows = [&](int64_t rows) -> Result<BatchTrial> {
      Recipe recipe = job_.recipe;
      recipe.batch_size = rows;
      ASSIGN_OR_RETURN(const auto run, find_run_plan(recipe, traits));
      BatchTrial trial{device_bytes(traits, *run), run->train_rows, run->work.nodes};
      const Result<TimeRange> step = machine_.step_time(device, run->work);
      trial.rows_per_second = step.ok() ? Result<double>(static_cast<double>(rows) / step->seconds)
                                        : Result<double>(step.error());
      return trial;
    };
    ASSIGN_OR_RETURN(batch_, choose_batch_size(search));
    planned_.recipe.batch_size = batch_->rows;
    return {};
  }

  /// Finds room for the job, and makes it fit by changing fields that the spec leaves open.
  Status fit() {
    RunPlan& run = planned_.plan.run;
    ASSIGN_OR_RETURN(room_, find_room(machine_, job_.wish, job_.gpus, planned_.plan_bytes()));
    const bool fits = room_.holds(device_bytes(planned_.traits, run));
    const bool drops_rows = run.dataset_bytes > 0 && !room_.holds(planned_.plan_bytes());
    if (!fits || options_.all_shardings) {
      ASSIGN_OR_RETURN(planned_.shardings,
                       find_sharding_plans({job_, planned_.recipe, schema_, machine_, room_,
                                            planned_.traits, options_.all_shardings},
                                           stop_));
    }
    if (!fits && !options_.as_written) {
      run.dataset_bytes = 0;
      const Recipe as_written = planned_.recipe;
      planned_.choice =
          choose_fit(planned_.recipe, planned_.shardings.plans, run, room_, planned_.traits);
      if (planned_.choice) {
        if (Status s = add_cost(as_written); !s.ok()) return s;
        if (Status s = plan(); !s.ok()) return s;
      }
    }
    if (!options_.all_shardings) planned_.shardings = {};
    if (drops_rows) leave_rows_on_host(planned_.plan);
    return {};
  }

  /// Adds the cost of the choice, compared with the recipe as written.
  Status add_cost(const Recipe& as_written) {
    FitChoice& choice = *planned_.choice;
    const Device& device =
        *std::ranges::find(machine_.devices.devices, room_.device, &Device::name);
    const DeviceTraits traits = traits_on(device.name);
    // Without rates, the message has no estimate of time.
    const auto step_seconds = [&](const RunWork& work) {
      const Result<TimeRange> step = machine_.step_time(device, work);
      return step.ok() ? step->seconds : 0.0;
    };
    ASSIGN_OR_RETURN(const auto before, find_run_plan(as_written, traits));
    ASSIGN_OR_RETURN(const auto after, find_run_plan(planned_.recipe, traits));
    choice.step_seconds_as_written = step_seconds(before->work);
    choice.step_seconds = step_seconds(after->work);
    choice.message += cost_text(choice, after->flops_per_step);
    return {};
  }

  /// Inserts the choice of the batch size before the choice that makes the job fit.
  void report_batch() {
    if (!batch_) return;
    if (!planned_.choice) planned_.choice.emplace();
    FitChoice& choice = *planned_.choice;
    choice.batch_size = batch_->rows;
    choice.message = batch_->message + (choice.message.empty() ? "" : ". " + choice.message);
  }

  const Machine& machine_;
  const JobToPlan& job_;
  const DatasetSchema& schema_;
  const PlanOptions& options_;
  const std::stop_token& stop_;
  PlannedRun planned_;
  MemoryRoom room_;  // where the job could have the most memory
  std::optional<BatchChoice> batch_;
};

}  // namespace

Result<PlannedRun> plan_on(const Machine& machine, const JobToPlan& job,
                           const DatasetSchema& schema,
                           const std::optional<StartingTensors>& weights,
                           const PlanOptions& options, const std::stop_token& stop) {
  std::optional<Machine> newer;
  return Planning(machine_for(machine, job.recipe.precision, newer), job, schema, options, stop)
      .run(weights);
}

Result<MemoryFit> judge_memory(const Machine& machine, const JobToPlan& job,
                               const DatasetSchema& schema, std::optional<int64_t> workspace_bytes,
                               PlannedRun& planned, const std::stop_token& stop) {
  RunPlan& run = planned.plan.run;
  run.memory.workspace_bytes = workspace_bytes.value_or(0);
  if (run.memory.workspace_bytes > 0 && !planned.shardings.plans.rows.empty()) {
    std::string& basis = planned.shardings.basis;
    basis += (basis.empty() ? "" : " ") +
             ("Memory excludes the kernels' workspace, which for the planned job is " +
              human_bytes(run.memory.workspace_bytes) + ".");
  }
  std::optional<Machine> newer;
  ASSIGN_OR_RETURN(const MemoryRoom room,
                   find_room(machine_for(machine, planned.recipe.precision, newer), job.wish,
                             job.gpus, planned.plan_bytes()));
  if (run.dataset_bytes > 0 && !room.holds(planned.plan_bytes())) leave_rows_on_host(planned.plan);
  const int64_t needed = planned.plan_bytes();
  MemoryFit fit;
  fit.bytes_needed = needed + room.overhead_bytes;
  fit.bytes_available = room.available_bytes();
  fit.fits = room.holds(needed);
  if (fit.fits) return fit;
  fit.bytes_short = needed - room.plan_bytes_max();
  fit.advice = advise_fit(job.model, planned.recipe, schema,
                          room.plan_bytes_max() - run.memory.workspace_bytes, job.ranks(),
                          planned.traits, stop, job.nodes <= 1);
  if (Status s = check_stop(stop); !s.ok()) return s.error();
  fit.message = shortage_text(needed, room) + "; " + describe(fit.advice);
  return fit;
}

}  // namespace trainyard
