// `trainyard plan` on this machine: plans as the server does, and measures the kernels' workspace.
#include <unistd.h>

#include <memory>
#include <optional>
#include <utility>

#include "client/cli/local_spec.h"
#include "client/cli/temporary_folder.h"
#include "client/local/devices.h"
#include "client/local/work.h"
#include "proto/convert/plan.h"
#include "proto/convert/run.h"
#include "src/calibration/calibrate.h"
#include "src/forecast/forecast.h"
#include "src/planning/gpu_comparison.h"
#include "src/planning/job_plan.h"
#include "src/planning/planner.h"
#include "src/runtime/open_backend.h"
#include "src/train/session.h"

namespace trainyard::cli {
namespace {

int64_t machine_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? int64_t{pages} * size : 0;
}

/// Returns the job on the chosen devices, which replace those of its resources.
JobToPlan job_on(const std::vector<std::string>& devices, v1::JobSpec spec, EngineSpec engine) {
  v1::Resources& resources = *spec.mutable_resources();
  resources.set_device(devices.front() == kCpuDevice ? v1::Resources::CPU : v1::Resources::GPU);
  resources.clear_nodes();
  resources.clear_gpus();
  if (devices.size() > 1) resources.set_gpus(static_cast<int32_t>(devices.size()));
  return to_plan(spec, std::move(engine));
}

/// Returns the machine with the chosen devices. The memory of GPUs is unknown here.
Machine machine_of(const std::vector<std::string>& names) {
  Machine machine;
  for (const std::string& name : names) {
    Device& device = machine.devices.devices.emplace_back();
    device.name = name;
    device.kind = name == kCpuDevice ? DeviceKind::kCpu : DeviceKind::kGpu;
    if (device.kind == DeviceKind::kCpu) device.memory_bytes = machine_bytes();
  }
  machine.step_time = [](const Device&, const RunWork&) -> Result<TimeRange> {
    return make_error(ErrorCode::kNotFound, "RATE_UNKNOWN", "only a server measures rates");
  };
  return machine;
}

/// Measures the CPU's rates, which takes some seconds, and forecasts the job from them.
CpuForecast forecast_on_cpu(const RunPlan& plan, int threads) {
  CpuForecast forecast;
  const std::unique_ptr<Backend> cpu = make_cpu_backend(threads);
  Result<DeviceRates> rates = calibrate(*cpu, {.precision = plan.precision});
  if (!rates.ok()) {
    forecast.basis = "unknown: its speed could not be measured: " + rates.error().message;
    return forecast;
  }
  const Result<RunForecast> run = forecast_run(plan.work, RateModel(std::move(rates).value()));
  if (!run.ok()) {
    forecast.basis = "unknown: " + run.error().message;
    return forecast;
  }
  forecast.total = run->total;
  forecast.rows_per_second_possible = run->rows_per_second_possible;
  forecast.basis =
      "speed measured with " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  return forecast;
}

/// Adds the comparisons of this machine's CPU with the GPUs.
Status add_comparisons(const std::vector<const KnownGpu*>& gpus, const JobToPlan& job,
                       const DatasetSchema& schema, int threads, v1::JobPlan& plan) {
  if (Status s = check_comparable(job, /*is_for_cluster=*/false, "--gpu"); !s.ok()) return s;
  const auto run_on = [&](Processor processor) {
    return plan_run(job.model, job.recipe, schema, /*ranks=*/1, traits_of(processor));
  };
  ASSIGN_OR_RETURN(const RunPlan on_gpu, run_on(Processor::kGpu));
  ASSIGN_OR_RETURN(const RunPlan on_cpu, run_on(Processor::kCpu));
  const CpuForecast cpu = forecast_on_cpu(on_cpu, threads);
  for (const ComparedGpu& row : compare_gpus(gpus, on_gpu, cpu, GpuPrice())) {
    *plan.add_gpu_comparisons() = to_proto(row, cpu);
  }
  plan.set_gpu_comparisons_basis(comparison_basis(cpu, GpuPrice(), /*price_is_assumed=*/true));
  return {};
}

}  // namespace

Result<v1::JobPlan> plan_here(const client::SpecFile& spec, const LocalPlanOptions& options) {
  ASSIGN_OR_RETURN(EngineSpec engine, local_engine(spec, "plan --local"));
  ASSIGN_OR_RETURN(const std::vector<std::string> devices,
                   pick_devices(spec.file.resources(), options.device));
  const std::string& device = devices.front();
  const auto ranks = std::ssize(devices);
  ASSIGN_OR_RETURN(const int threads, pick_threads(spec.file.resources(), options.threads));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, open_backend(device, threads));
  ASSIGN_OR_RETURN(const std::filesystem::path algorithms, local_algorithms_folder());
  backend->use_algorithms(
      std::make_shared<Algorithms>(Algorithms::Options{algorithms, /*times=*/false}));
  TemporaryFolder temporary;
  ASSIGN_OR_RETURN(const DatasetSchema schema, read_local_data(spec, temporary.path() / "dataset"));
  std::optional<WeightsFile> weights;
  std::optional<StartingTensors> starting;
  if (!spec.implied_tensors.empty()) {
    starting = {spec.implied_tensors};
  } else if (spec.has_weights()) {
    ASSIGN_OR_RETURN(weights, WeightsFile::open(local_weights(spec, engine.recipe)));
    starting = {weights->tensors()};
  }
  if (starting) {
    engine.recipe.initial_weights.tensors = std::make_shared<const std::vector<FileTensor>>(
        starting->tensors.begin(), starting->tensors.end());
  }
  const JobToPlan job = job_on(devices, spec.job_spec(), engine);
  const Machine machine = machine_of(devices);
  PlanOptions wanted;
  wanted.devices = PlannedFor::kWhereItStarts;
  wanted.with_layers = true;
  wanted.dump = options.dump;
  wanted.all_shardings = options.shardings;
  wanted.as_written = true;  // 'local run' trains the recipe as written
  Result<PlannedRun> planned = plan_on(machine, job, schema, starting, wanted);
  if (!planned.ok()) return spec.with_positions(std::move(planned).error());

  ASSIGN_OR_RETURN(const RunShape shape,
                   check_recipe(engine.recipe, engine.model, schema, ranks, backend->traits()));
  ASSIGN_OR_RETURN(RunPrograms programs, compile_run(engine.model, engine.recipe, schema, shape));
  if (Status s = check_kernels(programs, *backend); !s.ok()) return std::move(s).error();
  const int64_t workspace_bytes = measure_workspace(std::move(programs), *backend);
  ASSIGN_OR_RETURN(const MemoryFit fit,
                   judge_memory(machine, job, schema, workspace_bytes, *planned));

  v1::JobPlan plan = to_proto(*planned);
  *plan.mutable_fit() = to_proto(fit);
  *plan.mutable_spec() = spec.job_spec();
  plan.mutable_spec()->mutable_recipe()->set_precision(to_proto(engine.recipe.precision));
  plan.set_workspace_measured(true);
  plan.set_device(device);
  plan.set_threads(threads);
  plan.mutable_run()->set_device_advice("of this machine");
  if (!options.compared_gpus.empty()) {
    if (Status s = add_comparisons(options.compared_gpus, job, schema, threads, plan); !s.ok()) {
      return std::move(s).error();
    }
  }
  if (options.shardings) {
    plan.set_sharding_plans_basis(
        "A server would choose this; 'local run' trains the recipe as written. " +
        plan.sharding_plans_basis());
  }
  return plan;
}

}  // namespace trainyard::cli
