#include "server/planning/job_planner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "proto/convert/plan.h"
#include "proto/convert/resources.h"
#include "proto/convert/run.h"
#include "proto/convert/spec.h"
#include "server/people/people.h"
#include "server/planning/cluster_devices.h"
#include "server/planning/cluster_forecast.h"
#include "server/planning/spec_check.h"
#include "server/rpc/status.h"
#include "server/scheduler/project_devices.h"
#include "src/base/mutex.h"
#include "src/base/stop.h"
#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/data/dataset.h"
#include "src/planning/gpu_comparison.h"
#include "src/planning/recipe_check.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::server {
namespace {

constexpr size_t kDumpBytesMax = 3 << 20;  // a message may have 4 MiB

PlanDump dump_of(v1::PlanJobRequest::Dump dump) {
  switch (dump) {
    case v1::PlanJobRequest::GRAPH:
      return PlanDump::kGraph;
    case v1::PlanJobRequest::PROGRAM:
      return PlanDump::kProgram;
    case v1::PlanJobRequest::MEMORY:
      return PlanDump::kMemory;
    default:
      return PlanDump::kNone;
  }
}

/// Returns the memory that running jobs use on their devices, according to their plans. Mapped
/// files are left out, since the kernel does not count them as memory in use.
std::vector<JobMemory> memory_of(const std::vector<Job>& jobs) {
  std::vector<JobMemory> job_memory;
  for (const Job& job : jobs) {
    if (!is_active(job.state)) continue;
    const v1::MemoryPlan& memory = job.plan.memory();
    for (const std::string& device : job.devices) {
      job_memory.push_back(
          {device, device == kCpuDevice ? own_bytes_on_cpu(memory) : bytes_on_gpu(memory)});
    }
  }
  return job_memory;
}

/// Returns the refusal of a job that fits on no device.
Error impossible(const MemoryFit& fit) {
  Error e = make_error(ErrorCode::kInvalidArgument, "RESOURCES_IMPOSSIBLE", fit.message);
  e.metadata = {{"bytes_needed", std::to_string(fit.bytes_needed)},
                {"bytes_available", std::to_string(fit.bytes_available)},
                {"bytes_short", std::to_string(fit.bytes_short)},
                {"batch_size_that_fits", std::to_string(fit.advice.batch_size)},
                {"accumulate_steps_that_fit", std::to_string(fit.advice.accumulate_steps)},
                {"recompute_that_fits", std::string(name_of(fit.advice.recompute))},
                {"shard_that_fits", name_of(fit.advice.shard)}};
  return e;
}

/// Returns the key of a spec that was accepted in a project that may use these devices. No name of
/// a project or a device contains a zero byte.
std::string accepted_key(const std::string& project, const std::vector<std::string>& devices,
                         const v1::JobSpec& spec) {
  std::string key = project + '\0';
  for (const std::string& device : devices) key += device + '\0';
  return key + '\0' + spec.SerializeAsString();
}

/// Returns whether PlanJob replies without the workspace rather than with this error.
bool may_stay_unknown(const Error& error) {
  return error.code == ErrorCode::kInternal || error.code == ErrorCode::kDeadlineExceeded ||
         error.reason == kDeviceBusy || error.reason == kHostFault;
}

}  // namespace

struct JobPlanner::Planned {
  CheckedJob job;
  DatasetSchema schema;
  Devices devices;
  PlannedRun run;
  std::vector<const KnownGpu*> compared_gpus = {};  // GPUs with which the CPU is to be compared
  std::string project = {};
  ProjectDevices project_devices = {};  // the project's list, if it has one

  std::string key() const { return plan_key(job, run.recipe, run.traits); }
};

std::shared_ptr<const PlannedJob> JobPlanner::find_accepted(const std::string& project,
                                                            const v1::JobSpec& spec) {
  const std::string key = accepted_key(project, parts_.people.devices(project), spec);
  const int64_t changes = parts_.store.datasets().changes();
  const int64_t now_us = parts_.clock.steady_us();
  const MutexLock lock(mu_);
  const auto it = accepted_.find(key);
  const bool valid = devices_time_us_ != 0 && now_us - devices_time_us_ < kDevicesKeptUs &&
                     accepted_at_changes_ == changes && it != accepted_.end();
  return valid ? it->second : nullptr;
}

Result<PlannedJob> JobPlanner::plan(const std::string& project, const v1::JobSpec& spec,
                                    const std::stop_token& stop, StartingWeights weights) {
  if (const auto known = find_accepted(project, spec)) return *known;
  // Read the counters before the datasets and the devices, so that a change in the meantime makes
  // the result obsolete.
  const int64_t changes = parts_.store.datasets().changes();
  std::string key = accepted_key(project, parts_.people.devices(project), spec);
  int64_t devices_time_us = 0;
  {
    const MutexLock lock(mu_);
    devices_time_us = devices_time_us_;
  }
  ASSIGN_OR_RETURN(PlannedJob planned, plan_uncached(project, spec, stop, weights));
  // Do not cache these: the model may be created or deleted, a share may end, and a job that this
  // one waits for may end.
  if (key.size() > kAcceptedBytesMax || spec.recipe().has_initial_weights() ||
      !planned.dataset_project.empty() || !planned.after.empty()) {
    return planned;
  }
  auto accepted = std::make_shared<const PlannedJob>(planned);
  const MutexLock lock(mu_);
  if (devices_time_us_ != devices_time_us) return planned;
  if (accepted_at_changes_ != changes || accepted_.size() >= kAcceptedMax) accepted_.clear();
  accepted_at_changes_ = changes;
  accepted_[std::move(key)] = std::move(accepted);
  return planned;
}

Status JobPlanner::check_like(const v1::JobSpec& spec, const DatasetSchema& schema) {
  Violations violations;
  check_labels(spec, violations);
  Result<EngineSpec> engine = to_engine(spec);
  if (!engine.ok()) violations.add(engine.error());
  if (!violations.empty()) return violations.to_error();
  const Result<RunShape> shape =
      check_recipe(engine->recipe, engine->model, schema, ranks_of(spec.resources()),
                   traits_for(wish_of(spec.resources()), devices_for(spec)));
  if (!shape.ok()) return shape.error();
  return {};
}

Result<DatasetSchema> JobPlanner::schema_of(const std::string& dataset_digest) const {
  Result<DatasetSchema> schema = read_schema(parts_.paths.dataset(dataset_digest));
  if (schema.ok()) return schema;
  const Error& error = schema.error();
  if (!is_of_file_error(error.reason)) return internal_error("read_schema", error.message);
  return make_error(
      ErrorCode::kUnavailable, "STORAGE_ERROR",
      "the server cannot read the dataset at the moment: " + parts_.paths.hide(error.message));
}

Status JobPlanner::limit_devices(Planned& planned) {
  const std::vector<std::string> list = parts_.people.devices(planned.project);
  if (list.empty()) return {};
  planned.project_devices = {{planned.project, list}};
  if (Status s =
          check_project_devices(planned.project, list, planned.job.spec.resources(), devices());
      !s.ok()) {
    return s;
  }
  if (!planned.devices.cluster.empty()) return {};
  planned.devices =
      only_allowed(std::move(planned.devices), planned.project, planned.project_devices);
  const bool has_cpu = std::ranges::any_of(
      planned.devices.devices, [](const Device& d) { return d.kind == DeviceKind::kCpu; });
  // Where a project has no CPU, a job for any device is planned for a GPU.
  DeviceWish& wish = planned.job.job.wish;
  if (!has_cpu && wish == DeviceWish::kAuto) wish = DeviceWish::kGpu;
  return {};
}

Result<JobPlanner::Planned> JobPlanner::plan_checked(const std::string& project, CheckedJob job,
                                                     StartingWeights weights, PlanOptions options,
                                                     const std::stop_token& stop) {
  Planned planned{std::move(job), {}, {}, {}};
  planned.project = project;
  ASSIGN_OR_RETURN(planned.schema, schema_of(planned.job.dataset.digest));
  planned.devices = devices_for(planned.job.spec);
  if (Status s = limit_devices(planned); !s.ok()) return s.error();
  std::optional<StartingTensors> starting;
  if (const auto& model = planned.job.initial_weights) {
    auto tensors = std::make_shared<std::vector<FileTensor>>();
    for (const v1::WeightTensor& t : model->tensors) tensors->push_back(trainyard::to_engine(t));
    starting = {*tensors, weights == StartingWeights::kNeeded};
    planned.job.job.recipe.initial_weights.tensors = std::move(tensors);
  }
  options.find_run_plan = [&](const Recipe& recipe, DeviceTraits traits) {
    return run_plans_.find(planned.job, recipe, planned.schema, traits, stop);
  };
  ASSIGN_OR_RETURN(planned.run, plan_on(machine_for(planned.job, planned.devices), planned.job.job,
                                        planned.schema, starting, options, stop));
  set_choice(planned.run, planned.job);
  return planned;
}

Result<PlannedJob> JobPlanner::plan_uncached(const std::string& project, const v1::JobSpec& spec,
                                             const std::stop_token& stop, StartingWeights weights) {
  ASSIGN_OR_RETURN(CheckedJob checked, check_job(scope(project), spec, weights, parts_.config));
  ASSIGN_OR_RETURN(Planned planned, plan_checked(project, std::move(checked), weights, {}, stop));
  CheckedJob& job = planned.job;
  ASSIGN_OR_RETURN(const MemoryFit fit,
                   judge_memory(machine_for(job, planned.devices), job.job, planned.schema,
                                /*workspace_bytes=*/std::nullopt, planned.run, stop));
  if (!fit.fits) return impossible(fit);
  PlannedJob out;
  out.plan = to_proto(planned.run.plan.run);
  if (planned.run.choice) *out.plan.mutable_fit_choice() = to_proto(*planned.run.choice);
  out.plan.set_device_advice(planned.run.device.advice);
  if (Status s = add_forecasts(planned, out.plan, stop); !s.ok()) return s.error();
  out.dataset = job.dataset.ref();
  if (job.dataset.project != project) out.dataset_project = job.dataset.project;
  out.dataset_digest = job.dataset.digest;
  out.initial_model_id = job.initial_weights ? job.initial_weights->id : job.pending_model_id;
  if (job.initial_weights && job.initial_weights->project != project) {
    out.initial_model_project = job.initial_weights->project;
  }
  out.lacks_weights = job.lacks_weights ? job.lacks_weights : planned.run.lacks_weights;
  out.after = std::move(job.after);
  out.spec = std::move(job.spec);
  return out;
}

Result<JobPlanner::Planned> JobPlanner::plan_request(const std::string& project,
                                                     const v1::PlanJobRequest& request,
                                                     const std::stop_token& stop) {
  if (!v1::PlanJobRequest::Dump_IsValid(request.dump())) {
    return field_error(
        "FIELD_UNSUPPORTED", "dump",
        std::to_string(request.dump()) + " is not known, expected graph, program or memory");
  }
  constexpr auto kNeeded = StartingWeights::kNeeded;
  ASSIGN_OR_RETURN(CheckedJob checked,
                   check_job(scope(project), request.spec(), kNeeded, parts_.config));
  PlanOptions options;
  options.devices = PlannedFor::kWhereItStarts;
  options.with_layers = true;
  options.dump = dump_of(request.dump());
  options.all_shardings = request.sharding_plans();
  ASSIGN_OR_RETURN(Planned planned,
                   plan_checked(project, std::move(checked), kNeeded, std::move(options), stop));
  for (int i = 0; i < request.compared_gpus_size(); ++i) {
    const std::string field = "compared_gpus[" + std::to_string(i) + "]";
    ASSIGN_OR_RETURN(const std::vector<const KnownGpu*> gpus,
                     find_known_gpus(request.compared_gpus(i), field));
    if (Status s = check_comparable(planned.job.job, !planned.devices.cluster.empty(), field);
        !s.ok()) {
      return s.error();
    }
    for (const KnownGpu* gpu : gpus) {
      std::vector<const KnownGpu*>& compared = planned.compared_gpus;
      if (std::ranges::find(compared, gpu) == compared.end()) compared.push_back(gpu);
    }
  }
  const std::string& dump = planned.run.plan.dump;
  if (dump.size() > kDumpBytesMax) {
    return make_error(
        ErrorCode::kOutOfRange, "DUMP_TOO_LARGE",
        "the dump has " + human_bytes(static_cast<int64_t>(dump.size())) +
            ", more than the 3 MiB that fit in a message; 'trainyard plan --local' prints it");
  }
  return planned;
}

void JobPlanner::plan_in_full(const std::string& project, const v1::PlanJobRequest& request,
                              Done<v1::JobPlan> done, const std::stop_token& stop) {
  Result<Planned> planned = plan_request(project, request, stop);
  if (!planned.ok()) return done(std::move(planned).error());
  const DeviceChoice device = planned->run.device;
  const v1::JobSpec& spec = planned->job.spec;

  // The same kernels with the same number of threads need the same workspace.
  const std::string key = device.device == kCpuDevice
                              ? planned->key() + "/" + std::to_string(spec.resources().threads())
                              : "";
  if (const std::optional<int64_t> bytes = find_workspace(key)) {
    return done(finish(*planned, *bytes, stop));
  }
  if (!planned->devices.cluster.empty() && device.device != kCpuDevice) {
    return done(
        finish(*planned,
               make_error(ErrorCode::kInternal, "NOT_MEASURED",
                          "it can be measured only on the device, which is in the cluster " +
                              planned->devices.cluster),
               stop));
  }

  v1::MeasureTask task;
  *task.mutable_spec() = spec;
  if (const auto& model = planned->job.initial_weights) {
    task.mutable_weights()->Assign(model->tensors.begin(), model->tensors.end());
  }
  task.set_dataset_dir(parts_.paths.dataset(planned->job.dataset.digest).string());
  task.set_device(device.device);
  task.set_threads(spec.resources().threads());
  if (parts_.config.time_algorithms) {
    task.set_algorithms_dir(parts_.paths.algorithms().string());
  }
  // The result arrives on the thread that monitors all workers, which must not compute.
  auto shared = std::make_shared<Planned>(std::move(planned).value());
  parts_.one_shot_tasks.measure(
      std::move(task), device.uuid, [this, done, shared, key, stop](const Result<int64_t>& bytes) {
        if (bytes.ok()) keep_workspace(key, *bytes);
        const bool posted = parts_.planning.post(
            [this, done, shared, bytes, stop] { done(finish(*shared, bytes, stop)); });
        if (!posted) done(parts_.draining ? draining_error() : busy_error());
      });
}

std::optional<int64_t> JobPlanner::find_workspace(const std::string& key) {
  const MutexLock lock(mu_);
  const auto known = workspaces_.find(key);
  if (known == workspaces_.end()) return std::nullopt;
  return known->second;
}

void JobPlanner::keep_workspace(const std::string& key, int64_t bytes) {
  if (key.empty()) return;
  const MutexLock lock(mu_);
  if (workspaces_.size() >= kWorkspacesMax) workspaces_.clear();
  workspaces_.insert_or_assign(key, bytes);
}

Result<v1::JobPlan> JobPlanner::finish(Planned& planned, const Result<int64_t>& workspace,
                                       const std::stop_token& stop) {
  if (!workspace.ok() && !may_stay_unknown(workspace.error())) return workspace.error();
  ASSIGN_OR_RETURN(
      const MemoryFit fit,
      judge_memory(machine_for(planned.job, planned.devices), planned.job.job, planned.schema,
                   workspace.ok() ? std::optional(*workspace) : std::nullopt, planned.run, stop));
  v1::JobPlan plan = to_proto(planned.run);
  *plan.mutable_fit() = to_proto(fit);
  *plan.mutable_spec() = planned.job.spec;
  plan.set_threads(planned.job.spec.resources().threads());
  plan.set_device(planned.run.device.device);
  plan.set_workspace_measured(workspace.ok());
  if (!workspace.ok()) {
    plan.add_warnings("the kernels' workspace is unknown: " + workspace.error().message);
  }
  plan.mutable_run()->set_device_advice(planned.run.device.advice);
  if (Status s = add_forecasts(planned, *plan.mutable_run(), stop); !s.ok()) return s.error();
  if (Status s = add_comparisons(planned, plan, stop); !s.ok()) return s.error();
  if (Status s = check_stop(stop); !s.ok()) return s.error();
  return plan;
}

Devices JobPlanner::devices_for(const v1::JobSpec& spec) {
  const ClusterConfig* cluster = find_cluster(parts_.config.clusters, spec.resources().cluster());
  return cluster != nullptr
             ? devices_of(*cluster)
             : trainyard::devices_for(devices(), trainyard::to_engine(spec.recipe().precision()));
}

Devices JobPlanner::devices() {
  const int64_t now_us = parts_.clock.steady_us();
  {
    const MutexLock lock(mu_);
    if (devices_time_us_ != 0 && now_us - devices_time_us_ < kDevicesKeptUs) return devices_;
  }
  Devices fresh = parts_.inventory.read();
  const MutexLock lock(mu_);
  devices_ = fresh;
  devices_time_us_ = now_us;
  accepted_.clear();
  return fresh;
}

Machine JobPlanner::machine_for(const CheckedJob& job, const Devices& devices) {
  Machine machine;
  machine.devices = devices;
  if (!devices.cluster.empty()) {
    machine.step_time = [this, &job](const Device&, const RunWork& work) {
      return parts_.cluster_rates.step_time(
          cluster_query(job.spec, std::make_shared<RunWork>(work), /*plan_key=*/"", 0));
    };
    return machine;
  }
  machine.step_time = [this, &job](const Device& device, const RunWork& work) {
    return parts_.forecaster.step_time(device, job.spec.resources().threads(),
                                       job.spec.recipe().precision(), work);
  };
  machine.cpu_limit_bytes = parts_.config.cpu_memory_bytes_max;
  machine.job_memory = [this]() -> Result<std::vector<JobMemory>> {
    ASSIGN_OR_RETURN(const std::vector<Job> jobs, parts_.store.jobs().list_active());
    return memory_of(jobs);
  };
  return machine;
}

Status JobPlanner::add_forecasts(const Planned& planned, v1::RunPlan& plan,
                                 const std::stop_token& stop) {
  const CheckedJob& job = planned.job;
  const DeviceTraits traits = planned.run.traits;
  const std::string key = planned.key();
  const auto work = std::make_shared<const RunWork>(planned.run.plan.run.work);
  if (!planned.devices.cluster.empty()) {
    plan.clear_forecasts();
    add_cluster_forecast(parts_.cluster_rates,
                         cluster_query(job.spec, work, key, planned.run.plan_bytes()), plan);
    return {};
  }
  ForecastQuery query;
  query.threads = job.spec.resources().threads();
  query.gpus = job.job.gpus;
  query.precision = plan.precision();
  query.plan_bytes = bytes_on_gpu(plan.memory());
  query.bytes_on_cpu = bytes_on_cpu(plan.memory());
  query.key = key + "/" + std::to_string(query.threads) + "/" +
              std::to_string(static_cast<int>(job.job.wish)) + "/" +
              std::to_string(query.plan_bytes);
  if (!planned.project_devices.empty()) {
    for (const Device& device : planned.devices.devices) query.key += "/" + device.name;
  }
  // The work on each kind of processor, which differs because other passes run over the graph.
  const auto work_on = [&](Processor processor) -> Result<std::shared_ptr<const RunWork>> {
    if (traits.processor == processor) return work;
    ASSIGN_OR_RETURN(
        const std::shared_ptr<const RunPlan> run,
        run_plans_.find(job, job.job.recipe, planned.schema, traits_of(processor), stop));
    return std::shared_ptr<const RunWork>(run, &run->work);
  };
  if (job.job.wish != DeviceWish::kGpu && job.job.gpus == 1) {
    ASSIGN_OR_RETURN(query.cpu, work_on(Processor::kCpu));
  }
  if (may_get_gpu(job.job.wish, planned.devices)) {
    ASSIGN_OR_RETURN(query.gpu, work_on(Processor::kGpu));
  }
  const std::vector<v1::Forecast> forecasts = parts_.forecaster.forecast(query, planned.devices);
  plan.mutable_forecasts()->Assign(forecasts.begin(), forecasts.end());
  if (const std::string advice = forecast_advice(forecasts); !advice.empty()) {
    plan.set_device_advice(plan.device_advice() + " " + advice);
  }
  std::vector<ClusterConfig> allowed = parts_.config.clusters;
  std::erase_if(allowed, [&](const ClusterConfig& cluster) {
    return !may_use_cluster(planned.project_devices, planned.project, cluster.name);
  });
  const ClusterQuestion clusters{allowed, job.spec,           job.threads_named,
                                 key,     query.bytes_on_cpu, query.plan_bytes};
  ASSIGN_OR_RETURN(const std::string faster,
                   faster_clusters(parts_.cluster_rates, clusters, forecasts, work_on));
  plan.set_device_advice(plan.device_advice() + faster);
  return {};
}

Status JobPlanner::add_comparisons(const Planned& planned, v1::JobPlan& plan,
                                   const std::stop_token& stop) {
  if (planned.compared_gpus.empty()) return {};
  const CheckedJob& job = planned.job;
  const auto run_on = [&](Processor processor) {
    return run_plans_.find(job, job.job.recipe, planned.schema, traits_of(processor), stop);
  };
  ASSIGN_OR_RETURN(const std::shared_ptr<const RunPlan> on_gpu, run_on(Processor::kGpu));
  ASSIGN_OR_RETURN(const std::shared_ptr<const RunPlan> on_cpu, run_on(Processor::kCpu));
  ForecastQuery query;
  query.threads = job.spec.resources().threads();
  query.precision = plan.run().precision();
  query.cpu = std::shared_ptr<const RunWork>(on_cpu, &on_cpu->work);
  query.key = plan_key(job, job.job.recipe, traits_of(Processor::kCpu)) + "/" +
              std::to_string(query.threads) + "/compared";
  CpuForecast cpu;
  for (const v1::Forecast& f : parts_.forecaster.forecast(query, planned.devices)) {
    cpu = {{f.total_seconds(), f.total_seconds_low(), f.total_seconds_high()},
           f.basis(),
           f.rows_per_second_possible()};
  }
  const double cpu_price = parts_.config.cpu_price_per_hour;
  const double gpu_price = parts_.config.gpu_price_per_hour;
  GpuPrice price;
  const bool is_assumed = cpu_price <= 0 || gpu_price <= 0;
  if (!is_assumed) price.low = price.high = gpu_price / cpu_price;
  for (const ComparedGpu& row : compare_gpus(planned.compared_gpus, *on_gpu, cpu, price)) {
    *plan.add_gpu_comparisons() = to_proto(row, cpu);
  }
  plan.set_gpu_comparisons_basis(comparison_basis(cpu, price, is_assumed));
  return {};
}

}  // namespace trainyard::server
