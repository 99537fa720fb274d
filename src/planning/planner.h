// src/planning/planner.h: plans a job for the devices of a machine: its batch size, its memory, its
// cost, whether it fits, and which changes would make it fit. The server uses it at a submit and
// for PlanJob, `trainyard plan --local` for this machine. Pure functions, like those of job_plan.h.
//
// The size of the kernels' workspace is known only after the kernels of the planned job were
// prepared on the device. So planning has two steps: plan_on() chooses without the workspace, as a
// submit does, and judge_memory() decides whether the result fits, with the workspace if it was
// measured.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "src/base/result.h"
#include "src/checkpoint/weights_file.h"
#include "src/data/schema.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/plan/device_traits.h"
#include "src/planning/device_choice.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/planner_input.h"
#include "src/planning/sharding_choice.h"

namespace trainyard {

/// Returns the result of plan_run() for the job with a recipe, possibly from a cache.
using FindRunPlan = std::function<Result<std::shared_ptr<const RunPlan>>(const Recipe& recipe,
                                                                         DeviceTraits traits)>;

/// The devices that a plan is for.
enum class PlannedFor : uint8_t {
  kWhereverItRuns,  // the plan is valid on each kind of device that the job may get (traits_for)
  kWhereItStarts,   // the plan is for the device where the job would start now (traits_on)
};

/// How a job is planned, and which parts the result has.
struct PlanOptions {
  PlannedFor devices = PlannedFor::kWhereverItRuns;
  bool with_layers = false;  // fills the whole JobPlan; else only JobPlan::run
  PlanDump dump = PlanDump::kNone;
  bool all_shardings = false;      // returns all sharding plans, not only the chosen one
  bool as_written = false;         // a job that does not fit is not changed
  FindRunPlan find_run_plan = {};  // empty: plan_run() is called
};

/// The tensors of the file that recipe.initial_weights names.
struct StartingTensors {
  std::span<const FileTensor> tensors;
  bool must_match = true;  // if false, an error is stored in PlannedRun::lacks_weights
};

struct PlannedRun {
  Recipe recipe;        // with the planner's choices
  DeviceChoice device;  // where the job would start now
  DeviceTraits traits;  // the traits that the plan is for
  JobPlan plan;
  std::optional<FitChoice> choice;     // if the planner chose something
  std::optional<Error> lacks_weights;  // why the initial weights cannot be used
  FoundShardings shardings;            // filled with PlanOptions::all_shardings

  /// Returns the bytes of memory that the job takes on a device with `traits`.
  int64_t plan_bytes() const { return bytes_on(traits, plan.run); }
};

/// Plans a job for a machine. `weights` is nullopt if the recipe needs none or if another job has
/// yet to train them. Errors are those of plan_run(), plan_initial_weights() and
/// check_satisfiable(), and CANCELLED/STOPPED soon after `stop` is requested.
Result<PlannedRun> plan_on(const Machine& machine, const JobToPlan& job,
                           const DatasetSchema& schema,
                           const std::optional<StartingTensors>& weights,
                           const PlanOptions& options, const std::stop_token& stop = {});

/// The verdict on whether a planned job fits, and the advice that would make it fit.
struct MemoryFit {
  bool fits = true;
  int64_t bytes_needed = 0;     // with the overhead of the job's process
  int64_t bytes_available = 0;  // 0: unknown
  int64_t bytes_short = 0;      // 0 if the job fits
  std::string message;          // the shortage and the advice in words; empty if the job fits
  FitAdvice advice;             // if the job does not fit
};

/// Adds the workspace, if it is known, to the plan in `planned` and checks whether it fits. If the
/// GPU then has no room for a resident dataset, the rows stay on the host. Returns
/// CANCELLED/STOPPED soon after `stop` is requested.
Result<MemoryFit> judge_memory(const Machine& machine, const JobToPlan& job,
                               const DatasetSchema& schema, std::optional<int64_t> workspace_bytes,
                               PlannedRun& planned, const std::stop_token& stop = {});

}  // namespace trainyard
