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

}  // namespace

Result<v1::JobPlan> plan_here(const client::SpecFile& spec, const LocalPlanOptions& options) {
  ASSIGN_OR_RETURN(const EngineSpec engine, local_engine(spec, "plan --local"));
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
  const JobToPlan job = job_on(devices, spec.job_spec(), engine);
  const Machine machine = machine_of(devices);
  PlanOptions wanted;
  wanted.devices = PlannedFor::kWhereItStarts;
  wanted.with_layers = true;
  wanted.dump = options.dump;
  wanted.all_shardings = options.shardings;
  wanted.as_written = true;  // 'local run' trains the recipe as written
  std::optional<WeightsFile> weights;
  std::optional<StartingTensors> starting;
  if (spec.has_weights()) {
    ASSIGN_OR_RETURN(weights, WeightsFile::open(local_weights(spec, engine.recipe)));
    starting = {weights->tensors()};
  }
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
  if (options.shardings) {
    plan.set_sharding_plans_basis(
        "A server would choose this; 'local run' trains the recipe as written. " +
        plan.sharding_plans_basis());
  }
  return plan;
}

}  // namespace trainyard::cli
