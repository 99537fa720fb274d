// src/planning/planner.h: what becomes of a job on the devices of a machine: the size of its
// batches, how it lies in memory, what it costs, whether it fits and what would make it fit. The
// server plans so at a submit and for PlanJob, `trainyard plan --local` for this machine. Pure, as
// job_plan.h.
//
// The kernels' workspace is known only once kernels were prepared on the device, for the job that
// was planned. So there are two steps: plan_on() chooses without it, as a submit does, and
// judge_memory() says whether the result fits, with the workspace where it was measured.
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

/// Returns plan_run() of the job with a recipe, perhaps from a cache.
using FindRunPlan = std::function<Result<std::shared_ptr<const RunPlan>>(const Recipe& recipe,
                                                                         DeviceTraits traits)>;

/// The devices that a plan is for.
enum class PlannedFor : uint8_t {
  kWhereverItRuns,  // the plan holds on each kind of device that the job may get (traits_for)
  kWhereItStarts,   // on the one where it would start now (traits_on)
};

/// How a job is to be planned, and how much the answer has.
struct PlanOptions {
  PlannedFor devices = PlannedFor::kWhereverItRuns;
  bool with_layers = false;  // also layers, their warnings and the dump; else the run alone
  PlanDump dump = PlanDump::kNone;
  bool all_shardings = false;      // each way to lay the job out, not only the one that is chosen
  bool as_written = false;         // a job that does not fit stays as it is
  FindRunPlan find_run_plan = {};  // none: plan_run()
};

/// The tensors of the file that recipe.initial_weights names.
struct StartingTensors {
  std::span<const FileTensor> tensors;
  bool must_match = true;  // else a refusal goes to PlannedRun::lacks_weights
};

struct PlannedRun {
  Recipe recipe;        // as the job would train
  DeviceChoice device;  // where it would start now
  DeviceTraits traits;  // that it is planned with
  JobPlan plan;
  std::optional<FitChoice> choice;     // where something was chosen
  std::optional<Error> lacks_weights;  // why the starting weights cannot be had
  FoundShardings shardings;            // with PlanOptions::all_shardings

  /// The bytes that the job takes of a device such as it is planned for.
  int64_t plan_bytes() const { return bytes_on(traits, plan.run); }
};

/// Plans a job for a machine. `weights` are missing where the recipe needs none or another job will
/// make them. Errors are those of plan_run(), plan_initial_weights() and check_satisfiable();
/// CANCELLED/STOPPED soon after `stop` is requested.
Result<PlannedRun> plan_on(const Machine& machine, const JobToPlan& job,
                           const DatasetSchema& schema,
                           const std::optional<StartingTensors>& weights,
                           const PlanOptions& options, const std::stop_token& stop = {});

/// The verdict on whether a planned job fits, and the advice that would make it fit.
struct MemoryFit {
  bool fits = true;
  int64_t bytes_needed = 0;     // with the overhead of its process
  int64_t bytes_available = 0;  // 0: unknown
  int64_t bytes_short = 0;      // 0 if it fits
  std::string message;          // what is missing and what would help; empty if it fits
  FitAdvice advice;             // if it does not fit
};

/// Adds the workspace to the plan, if it is known; rows that the GPU has then no room for stay on
/// the host. CANCELLED/STOPPED as above.
Result<MemoryFit> judge_memory(const Machine& machine, const JobToPlan& job,
                               const DatasetSchema& schema, std::optional<int64_t> workspace_bytes,
                               PlannedRun& planned, const std::stop_token& stop = {});

}  // namespace trainyard
