#include "server/planning/former_planner.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "proto/convert/plan.h"
#include "proto/convert/resources.h"
#include "proto/convert/run.h"
#include "proto/convert/spec.h"
#include "server/planning/batch_choice.h"
#include "server/planning/cluster_devices.h"
#include "server/planning/cluster_forecast.h"
#include "server/planning/device_choice.h"
#include "server/planning/digest.h"
#include "server/planning/spec_check.h"
#include "server/rpc/names.h"
#include "server/rpc/status.h"
#include "server/scheduler/scheduler.h"
#include "src/base/mutex.h"
#include "src/base/stop.h"
#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/data/dataset.h"
#include "src/planning/fit.h"
#include "src/planning/job_plan.h"
#include "src/planning/recipe_check.h"
#include "src/planning/weight_match.h"
#include "src/runtime/cuda_error.h"

namespace trainyard::server {
namespace {

constexpr size_t kDumpBytesMax = 3 << 20;  // a message may have 4 MiB

/// What was chosen of the batch, in front of what was chosen to make the job fit.
void add_batch_choice(const std::optional<v1::FitChoice>& batch, v1::RunPlan& plan) {
  if (!batch) return;
  v1::FitChoice& choice = *plan.mutable_fit_choice();
  choice.set_batch_size(batch->batch_size());
  choice.set_message(batch->message() + (choice.message().empty() ? "" : ". " + choice.message()));
}

/// What a plan depends on. The spec's precision is part of its recipe, given or not.
std::string plan_key(const v1::JobSpec& spec, const Dataset& dataset, DeviceTraits traits) {
  std::string shard;
  for (const int part : spec.resources().shard()) shard += std::to_string(part) + "+";
  return dataset.digest + digest_of(spec.model()) + digest_of(spec.recipe()) +
         std::to_string(ranks_of(spec.resources())) + "/" +
         std::to_string(nodes_of(spec.resources())) + "/" + shard + "/" +
         std::to_string(traits.alignment) + (traits.processor == Processor::kGpu ? "/gpu" : "/cpu");
}

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

}  // namespace

/// A valid spec with an existing dataset.
struct FormerPlanner::CheckedJob {
  v1::JobSpec spec;  // as accepted
  EngineSpec engine;
  Dataset dataset;
  DeviceWish wish = DeviceWish::kAuto;
  int32_t gpus = 1;   // of one node
  int32_t ranks = 1;  // of all
  std::vector<Dependency> after;
  std::optional<Model> initial_weights;
  std::string pending_model_id;  // in place of initial_weights: a job in `after` will make it
  std::optional<Error> lacks_weights;
  bool threads_named = false;                 // by the user
  std::optional<v1::FitChoice> batch_choice;  // of `batch_size: auto`

  /// The weights that would be taken. Nothing if the job needs none.
  Result<std::optional<v1::InitialWeightsReport>> plan_weights(const DatasetSchema& schema) const {
    std::optional<v1::InitialWeightsReport> planned;
    if (!initial_weights) return planned;
    std::vector<FileTensor> tensors;
    for (const v1::WeightTensor& t : initial_weights->tensors) {
      tensors.push_back(trainyard::to_engine(t));
    }
    ASSIGN_OR_RETURN(const InitialWeightsReport report,
                     plan_initial_weights(engine.model, engine.recipe, schema, tensors));
    planned = trainyard::to_proto(report);
    return planned;
  }
};

struct FormerPlanner::FullPlan {
  CheckedJob job;
  DatasetSchema schema;
  DeviceChoice device;
  v1::JobPlan plan;
  KeptPlan kept;
};

Result<FormerPlanner::CheckedJob> FormerPlanner::check(const v1::JobSpec& spec,
                                                       StartingWeights weights) const {
  Violations violations;
  check_labels(spec, violations);
  if (spec.dataset().name().empty()) {
    violations.add("FIELD_REQUIRED", "dataset.name", "is missing, expected a dataset's id");
  }
  // The engine's own checks come first, so that a user learns of all problems of the spec at once
  // and of a missing dataset only then.
  CheckedJob job;
  job.spec = spec;
  resolve_cluster(parts_.config.clusters, *job.spec.mutable_resources(), violations);
  if (batch_size_is_open(spec)) {  // until it is chosen
    job.spec.mutable_recipe()->set_batch_size(batch_unit(spec));
  }
  if (Result<EngineSpec> engine = to_engine(job.spec); engine.ok()) {
    job.engine = std::move(engine).value();
  } else {
    violations.add(engine.error());
  }
  job.after = read_after(job.spec, violations);
  if (!violations.empty()) return violations.to_error();

  ASSIGN_OR_RETURN(const DatasetRef ref,
                   parse_dataset_id_or_name("dataset.name", spec.dataset().name()));
  ASSIGN_OR_RETURN(job.dataset, parts_.store.datasets().find_usable("default", ref));
  if (job.dataset.state != v1::Dataset::READY) {
    return not_ready_error(job.dataset, "submit");
  }
  if (Status s = parts_.store.jobs().check_after(kProject, job.after); !s.ok()) return s.error();
  job.spec.mutable_dataset()->set_name(job.dataset.name());
  // Recorded with the job: the same thread count and precision give the same bits, whatever the
  // defaults become.
  job.threads_named = spec.resources().has_threads();
  if (!job.spec.resources().has_threads()) {
    job.spec.mutable_resources()->set_threads(parts_.config.threads_per_job);
  }
  job.spec.mutable_recipe()->set_precision(to_proto(job.engine.recipe.precision));
  auto initial_weights = find_initial_weights(spec, job.after, &job.pending_model_id, parts_.store);
  if (initial_weights.ok()) {
    job.initial_weights = std::move(initial_weights).value();
  } else if (weights == StartingWeights::kMayBeGone &&
             initial_weights.error().code == ErrorCode::kNotFound) {
    job.lacks_weights = initial_weights.error();
  } else {
    return initial_weights.error();
  }
  job.wish = wish_of(job.spec.resources());
  job.gpus = gpus_of(job.spec.resources());
  job.ranks = ranks_of(job.spec.resources());
  return job;
}

std::shared_ptr<const PlannedJob> FormerPlanner::find_accepted(const v1::JobSpec& spec) {
  const std::string key = spec.SerializeAsString();
  const int64_t changes = parts_.store.datasets().changes();
  const int64_t now_us = parts_.clock.steady_us();
  const MutexLock lock(mu_);
  const auto it = accepted_.find(key);
  const bool valid = devices_time_us_ != 0 && now_us - devices_time_us_ < kDevicesKeptUs &&
                     accepted_at_changes_ == changes && it != accepted_.end();
  return valid ? it->second : nullptr;
}

Result<PlannedJob> FormerPlanner::plan(const v1::JobSpec& spec, const std::stop_token& stop,
                                       StartingWeights weights) {
  if (const auto known = find_accepted(spec)) return *known;
  // Read before the datasets and the devices are: a change meanwhile makes what was found too old.
  const int64_t changes = parts_.store.datasets().changes();
  int64_t devices_time_us = 0;
  {
    const MutexLock lock(mu_);
    devices_time_us = devices_time_us_;
  }
  ASSIGN_OR_RETURN(PlannedJob planned, plan_anew(spec, stop, weights));
  std::string key = spec.SerializeAsString();
  // A model can come and go, and a job that it waits for can end.
  if (key.size() > kAcceptedBytesMax || spec.recipe().has_initial_weights() ||
      !planned.after.empty()) {
    return planned;
  }
  auto accepted = std::make_shared<const PlannedJob>(planned);
  const MutexLock lock(mu_);
  if (devices_time_us_ != devices_time_us) return planned;
  if (accepted_at_changes_ != changes || accepted_.size() >= kPlansKeptMax) accepted_.clear();
  accepted_at_changes_ = changes;
  accepted_[std::move(key)] = std::move(accepted);
  return planned;
}

Status FormerPlanner::check_like(const v1::JobSpec& spec, const DatasetSchema& schema) {
  Violations violations;
  check_labels(spec, violations);
  Result<EngineSpec> engine = to_engine(spec);
  if (!engine.ok()) violations.add(engine.error());
  if (!violations.empty()) return violations.to_error();
  const Result<RunShape> shape =
      check_recipe(engine->recipe, engine->model, schema, ranks_of(spec.resources()),
                   server::traits_for(wish_of(spec.resources()), devices_for(spec)));
  if (!shape.ok()) return shape.error();
  return {};
}

Result<DatasetSchema> FormerPlanner::schema_of(const std::string& dataset_digest) const {
  Result<DatasetSchema> schema = read_schema(parts_.paths.dataset(dataset_digest));
  if (schema.ok()) return schema;
  const Error& error = schema.error();
  if (!is_of_file_error(error.reason)) return internal_error("read_schema", error.message);
  return make_error(
      ErrorCode::kUnavailable, "STORAGE_ERROR",
      "the server cannot read the dataset just now: " + parts_.paths.hide(error.message));
}

Result<PlannedJob> FormerPlanner::plan_anew(const v1::JobSpec& spec, const std::stop_token& stop,
                                            StartingWeights weights) {
  ASSIGN_OR_RETURN(CheckedJob job, check(spec, weights));
  PlannedJob planned;
  planned.dataset = job.dataset.ref();
  planned.dataset_digest = job.dataset.digest;
  planned.after = job.after;
  planned.initial_model_id = job.pending_model_id;
  planned.lacks_weights = job.lacks_weights;
  const Devices devices = devices_for(job.spec);
  if (batch_size_is_open(spec)) {
    if (Status s = choose_batch(job, devices, stop); !s.ok()) return s.error();
  }
  const DeviceTraits traits = server::traits_for(job.wish, devices);
  ASSIGN_OR_RETURN(KeptPlan kept, plan_on_dataset(job.spec, job.dataset, traits, stop));
  planned.plan = kept.plan;
  if (job.initial_weights) {
    planned.initial_model_id = job.initial_weights->id;
    ASSIGN_OR_RETURN(const DatasetSchema schema, schema_of(job.dataset.digest));
    auto report = job.plan_weights(schema);
    if (!report.ok()) {  // of that name there is now another model
      if (weights == StartingWeights::kNeeded) return report.error();
      planned.lacks_weights = report.error();
    } else if (report->has_value()) {
      *planned.plan.mutable_initial_weights() = std::move(**report);
    }
  }
  if (Status s = server::check_satisfiable(job.wish, job.gpus, devices); !s.ok()) return s.error();
  // What only a GPU holds.
  if (!server::may_get_gpu(job.wish, devices)) planned.plan.mutable_memory()->set_dataset_bytes(0);
  if (Status s = make_room(job, devices, traits, *planned.plan.mutable_memory()); !s.ok())
    return s.error();
  const int64_t needed = server::bytes_on(traits, planned.plan.memory());
  ASSIGN_OR_RETURN(const MemoryRoom room, find_room(job.wish, job.gpus, devices, needed));
  if (room.memory_bytes > 0 && needed > room.plan_bytes_max()) {
    ASSIGN_OR_RETURN(const DatasetSchema schema, schema_of(job.dataset.digest));
    const v1::JobSpec as_written = job.spec;
    ASSIGN_OR_RETURN(const FoundShardings found,
                     server::find_sharding_plans({job.spec, job.engine, schema, devices, room,
                                                  traits, times_of(job.spec, devices)},
                                                 stop));
    std::optional<v1::FitChoice> choice =
        server::choose_fit(job.spec, job.engine, found.shardings, planned.plan, room, traits);
    if (!choice) {
      return impossible(job, schema, needed, room, traits, stop);
    }
    if (Status s = add_cost(as_written, job, room, devices, *choice, stop); !s.ok()) {
      return s.error();
    }
    ASSIGN_OR_RETURN(kept, plan_on_dataset(job.spec, job.dataset, traits, stop));
    v1::RunPlan fitting = kept.plan;
    fitting.mutable_memory()->set_dataset_bytes(0);
    if (planned.plan.has_initial_weights()) {
      fitting.mutable_initial_weights()->Swap(planned.plan.mutable_initial_weights());
    }
    *fitting.mutable_fit_choice() = *std::move(choice);
    planned.plan = std::move(fitting);
  }
  add_batch_choice(job.batch_choice, planned.plan);
  planned.plan.set_device_advice(
      server::choose_device(job.wish, job.gpus, job.engine.recipe.batch_size, devices).advice);
  if (Status s = add_forecasts(job, devices, kept, traits, planned.plan, stop); !s.ok()) {
    return s.error();
  }
  planned.spec = std::move(job.spec);
  return planned;
}

Status FormerPlanner::choose_batch(CheckedJob& job, const Devices& devices,
                                   const std::stop_token& stop) {
  // Kernels on a GPU need a workspace, which is unknown before a worker has prepared them.
  constexpr int64_t kWorkspaceShare = 8;
  const DeviceChoice choice =
      server::choose_device(job.wish, job.gpus, job.engine.recipe.batch_size, devices);
  const Device device = server::device_of(choice, job.wish, devices);
  const bool cpu = device.kind == DeviceKind::kCpu;
  ASSIGN_OR_RETURN(MemoryRoom room, find_room(cpu ? DeviceWish::kCpu : DeviceWish::kGpu, job.gpus,
                                              devices, kUnlimited));
  const DeviceTraits traits = {cpu ? kHostAlignment : kCudaAlignment,
                               cpu ? Processor::kCpu : Processor::kGpu};
  v1::JobSpec spec = job.spec;
  BatchSearch search;
  search.unit = batch_unit(spec);
  if (room.device.empty()) room = {device.name, device.memory_bytes, 0, device.overhead_bytes};
  if (room.memory_bytes > 0) {
    const int64_t workspace_bytes = cpu ? 0 : room.plan_bytes_max() / kWorkspaceShare;
    search.plan_bytes_max = std::max<int64_t>(1, room.plan_bytes_max() - workspace_bytes);
  }
  search.try_rows = [&](int64_t rows) -> Result<BatchTrial> {
    spec.mutable_recipe()->set_batch_size(rows);
    ASSIGN_OR_RETURN(const KeptPlan kept, plan_on_dataset(spec, job.dataset, traits, stop));
    v1::MemoryPlan memory = kept.plan.memory();
    memory.set_dataset_bytes(0);  // which may stay on the host
    BatchTrial trial{server::bytes_on(traits, memory), kept.plan.train_rows(), kept.work->nodes};
    const Result<TimeRange> step = times_of(spec, devices)(device, *kept.work);
    trial.rows_per_second = step.ok() ? Result<double>(static_cast<double>(rows) / step->seconds)
                                      : Result<double>(step.error());
    return trial;
  };
  ASSIGN_OR_RETURN(job.batch_choice, server::choose_batch_size(search));
  job.engine.recipe.batch_size = job.batch_choice->batch_size();
  job.spec.mutable_recipe()->set_batch_size(job.engine.recipe.batch_size);
  return {};
}

Status FormerPlanner::add_cost(const v1::JobSpec& as_written, const CheckedJob& job,
                               const MemoryRoom& room, const Devices& devices,
                               v1::FitChoice& choice, const std::stop_token& stop) {
  const Device& device = *std::ranges::find(devices.devices, room.device, &Device::name);
  const DeviceTraits traits = server::traits_on(device.name);
  // Without an estimate where rates are missing.
  const auto step_seconds = [&](const RunWork& work) {
    const Result<TimeRange> step = times_of(job.spec, devices)(device, work);
    return step.ok() ? step->seconds : 0.0;
  };
  ASSIGN_OR_RETURN(const KeptPlan before, plan_on_dataset(as_written, job.dataset, traits, stop));
  ASSIGN_OR_RETURN(const KeptPlan after, plan_on_dataset(job.spec, job.dataset, traits, stop));
  choice.set_step_seconds_as_written(step_seconds(*before.work));
  choice.set_step_seconds(step_seconds(*after.work));
  choice.set_message(choice.message() + server::cost_text(choice, after.plan.flops_per_step()));
  return {};
}

Error FormerPlanner::impossible(const CheckedJob& job, const DatasetSchema& schema,
                                int64_t needed_bytes, const MemoryRoom& room, DeviceTraits traits,
                                const std::stop_token& stop) {
  const FitAdvice advice =
      advise_fit(job.engine.model, job.engine.recipe, schema, room.plan_bytes_max(), job.ranks,
                 traits, stop, job.spec.resources().nodes() <= 1);
  if (Status s = check_stop(stop); !s.ok()) return s.error();
  Error e = make_error(ErrorCode::kInvalidArgument, "RESOURCES_IMPOSSIBLE",
                       server::shortage_text(needed_bytes, room) + "; " + describe(advice));
  e.metadata = {{"bytes_needed", std::to_string(needed_bytes + room.overhead_bytes)},
                {"bytes_available", std::to_string(room.available_bytes())},
                {"bytes_short", std::to_string(needed_bytes - room.plan_bytes_max())},
                {"batch_size_that_fits", std::to_string(advice.batch_size)},
                {"accumulate_steps_that_fit", std::to_string(advice.accumulate_steps)},
                {"recompute_that_fits", std::string(name_of(advice.recompute))},
                {"shard_that_fits", name_of(advice.shard)}};
  return e;
}

Result<FormerPlanner::FullPlan> FormerPlanner::plan_layers(const v1::PlanJobRequest& request,
                                                           const Devices& devices,
                                                           const std::stop_token& stop) {
  if (!v1::PlanJobRequest::Dump_IsValid(request.dump())) {
    return field_error(
        "FIELD_UNSUPPORTED", "dump",
        std::to_string(request.dump()) + " is not known, expected graph, program or memory");
  }
  FullPlan full;
  ASSIGN_OR_RETURN(full.job, check(request.spec()));
  ASSIGN_OR_RETURN(full.schema, schema_of(full.job.dataset.digest));
  if (batch_size_is_open(request.spec())) {
    if (Status s = choose_batch(full.job, devices, stop); !s.ok()) return s.error();
  }
  full.device = server::choose_device(full.job.wish, full.job.gpus,
                                      full.job.engine.recipe.batch_size, devices);
  const auto plan_as_it_is = [&] {
    return plan_job(full.job.engine.model, full.job.engine.recipe, full.schema,
                    dump_of(request.dump()), full.job.ranks, server::traits_on(full.device.device),
                    stop);
  };
  ASSIGN_OR_RETURN(JobPlan plan, plan_as_it_is());
  const DeviceTraits traits = server::traits_on(full.device.device);
  const int64_t host_bytes = traits.processor == Processor::kCpu ? plan.run.host_bytes : 0;
  const int64_t needed = plan.run.memory.total() + host_bytes;
  ASSIGN_OR_RETURN(const MemoryRoom room, find_room(full.job.wish, full.job.gpus, devices, needed));
  std::optional<v1::FitChoice> choice;
  const bool fits = room.memory_bytes == 0 || needed <= room.plan_bytes_max();
  FoundShardings found;
  if (!fits || request.sharding_plans()) {
    ASSIGN_OR_RETURN(found, server::find_sharding_plans(
                                {full.job.spec, full.job.engine, full.schema, devices, room, traits,
                                 times_of(full.job.spec, devices), request.sharding_plans()},
                                stop));
  }
  if (!fits) {
    v1::RunPlan as_written = to_proto(plan.run);
    as_written.mutable_memory()->set_dataset_bytes(0);
    const v1::JobSpec spec = full.job.spec;
    choice = server::choose_fit(full.job.spec, full.job.engine, found.shardings, as_written, room,
                                traits);
    if (choice) {
      if (Status s = add_cost(spec, full.job, room, devices, *choice, stop); !s.ok()) {
        return s.error();
      }
    }
  }
  if (choice) {
    ASSIGN_OR_RETURN(plan, plan_as_it_is());
  }
  if (plan.dump.size() > kDumpBytesMax) {
    return make_error(
        ErrorCode::kOutOfRange, "DUMP_TOO_LARGE",
        "the dump has " + human_bytes(static_cast<int64_t>(plan.dump.size())) +
            ", more than the 3 MiB that a message holds; 'trainyard plan --local' prints it");
  }
  full.plan = to_proto(plan);
  if (request.sharding_plans()) server::set_sharding_plans(found, room, full.plan);
  if (choice) *full.plan.mutable_run()->mutable_fit_choice() = *std::move(choice);
  add_batch_choice(full.job.batch_choice, *full.plan.mutable_run());
  full.kept = {plan_key(full.job.spec, full.job.dataset, server::traits_on(full.device.device)),
               {},
               std::make_shared<RunWork>(plan.run.work)};
  ASSIGN_OR_RETURN(auto report, full.job.plan_weights(full.schema));
  if (report) *full.plan.mutable_run()->mutable_initial_weights() = std::move(*report);
  *full.plan.mutable_spec() = full.job.spec;
  full.plan.set_threads(full.job.spec.resources().threads());
  return full;
}

void FormerPlanner::plan_in_full(const v1::PlanJobRequest& request, Done<v1::JobPlan> done,
                                 const std::stop_token& stop) {
  const Devices devices = devices_for(request.spec());
  Result<FullPlan> planned = plan_layers(request, devices, stop);
  if (!planned.ok()) return done(std::move(planned).error());
  if (Status s = server::check_satisfiable(planned->job.wish, planned->job.gpus, devices); !s.ok())
    return done(s.error());
  const DeviceChoice choice = planned->device;
  planned->plan.set_device(choice.device);
  planned->plan.mutable_run()->set_device_advice(choice.advice);
  if (choice.device == kCpuDevice)
    planned->plan.mutable_run()->mutable_memory()->set_dataset_bytes(0);

  // The same kernels with as many threads need the same.
  const std::string key = choice.device == kCpuDevice
                              ? planned->kept.key + "/" + std::to_string(planned->plan.threads())
                              : "";
  if (const std::optional<int64_t> bytes = find_workspace(key)) {
    return done(finish(*planned, devices, *bytes, stop));
  }
  if (!devices.cluster.empty() && choice.device != kCpuDevice) {
    return done(finish(
        *planned, devices,
        make_error(ErrorCode::kInternal, "NOT_MEASURED",
                   "it is measured on the device, which is in the cluster " + devices.cluster),
        stop));
  }

  v1::MeasureTask task;
  *task.mutable_spec() = planned->job.spec;
  task.set_dataset_dir(parts_.paths.dataset(planned->job.dataset.digest).string());
  task.set_device(choice.device);
  task.set_threads(planned->plan.threads());
  if (parts_.config.time_algorithms) {
    task.set_algorithms_dir(parts_.paths.algorithms().string());
  }
  // The answer comes on the thread that watches all workers, which must not compute.
  auto full = std::make_shared<FullPlan>(std::move(planned).value());
  parts_.errands.measure(std::move(task), choice.uuid,
                         [this, devices, done, full, key, stop](const Result<int64_t>& workspace) {
                           if (workspace.ok()) keep_workspace(key, *workspace);
                           const bool posted =
                               parts_.planning.post([this, devices, done, full, workspace, stop] {
                                 done(finish(*full, devices, workspace, stop));
                               });
                           if (!posted) done(parts_.draining ? draining_error() : busy_error());
                         });
}

std::optional<int64_t> FormerPlanner::find_workspace(const std::string& key) {
  const MutexLock lock(mu_);
  const auto known = workspaces_.find(key);
  if (known == workspaces_.end()) return std::nullopt;
  return known->second;
}

void FormerPlanner::keep_workspace(const std::string& key, int64_t bytes) {
  if (key.empty()) return;
  const MutexLock lock(mu_);
  if (workspaces_.size() >= kPlansKeptMax) workspaces_.clear();
  workspaces_.insert_or_assign(key, bytes);
}

Result<v1::JobPlan> FormerPlanner::finish(FullPlan& full, const Devices& devices,
                                          Result<int64_t> workspace, const std::stop_token& stop) {
  v1::JobPlan& plan = full.plan;
  if (workspace.ok()) {
    plan.set_workspace_measured(true);
    plan.mutable_run()->mutable_memory()->set_workspace_bytes(*workspace);
    server::add_workspace(*workspace, plan);
  } else if (workspace.error().code == ErrorCode::kInternal ||
             workspace.error().code == ErrorCode::kDeadlineExceeded ||
             workspace.error().reason == kDeviceBusy) {
    plan.add_warnings("the kernels' workspace is unknown: " + workspace.error().message);
  } else {
    return std::move(workspace).error();
  }
  v1::MemoryPlan& memory = *plan.mutable_run()->mutable_memory();
  const bool held = memory.dataset_bytes() > 0;
  if (Status s = make_room(full.job, devices, server::traits_on(full.device.device), memory);
      !s.ok())
    return s.error();
  if (held && memory.dataset_bytes() == 0) {
    plan.add_warnings(
        "the GPU has no room for the training rows besides the job: its batches come from the "
        "host");
  }
  *plan.mutable_fit() =
      fit_of(full, server::bytes_on(server::traits_on(full.device.device), memory), devices, stop);
  const DeviceTraits traits = server::traits_on(full.device.device);
  if (Status s = add_forecasts(full.job, devices, full.kept, traits, *plan.mutable_run(), stop);
      !s.ok()) {
    return s.error();
  }
  if (Status s = check_stop(stop); !s.ok()) return s.error();
  return std::move(plan);
}

Result<MemoryRoom> FormerPlanner::find_room(DeviceWish wish, int32_t gpus, const Devices& devices,
                                            int64_t needed_bytes) const {
  if (!devices.cluster.empty()) return server::largest_room(wish, gpus, devices, {}, 0);
  const int64_t cpu_limit = parts_.config.cpu_memory_bytes_max;
  // Counts all memory in use as others': most jobs fit even then.
  const MemoryRoom least = server::largest_room(wish, gpus, devices, {}, cpu_limit);
  if (least.memory_bytes == 0 || needed_bytes <= least.plan_bytes_max()) return least;
  ASSIGN_OR_RETURN(const std::vector<Job> jobs, parts_.store.jobs().list_active());
  return server::largest_room(wish, gpus, devices, jobs, cpu_limit);
}

Status FormerPlanner::make_room(const CheckedJob& job, const Devices& devices, DeviceTraits traits,
                                v1::MemoryPlan& memory) const {
  const int64_t needed = server::bytes_on(traits, memory);
  ASSIGN_OR_RETURN(const MemoryRoom room, find_room(job.wish, job.gpus, devices, needed));
  if (room.memory_bytes > 0 && needed > room.plan_bytes_max()) memory.set_dataset_bytes(0);
  return {};
}

v1::MemoryFit FormerPlanner::fit_of(const FullPlan& full, int64_t plan_bytes,
                                    const Devices& devices, const std::stop_token& stop) const {
  v1::MemoryFit fit;
  fit.set_bytes_needed(plan_bytes);
  const Result<MemoryRoom> room = find_room(full.job.wish, full.job.gpus, devices, plan_bytes);
  if (room.ok()) fit.set_bytes_needed(plan_bytes + room->overhead_bytes);
  if (!room.ok() || room->memory_bytes == 0) {  // unknown: not held against the job
    fit.set_fits(true);
    return fit;
  }
  fit.set_bytes_available(room->available_bytes());
  fit.set_fits(plan_bytes <= room->plan_bytes_max());
  if (fit.fits()) return fit;
  const FitAdvice advice = advise_fit(
      full.job.engine.model, full.job.engine.recipe, full.schema,
      room->plan_bytes_max() - full.plan.run().memory().workspace_bytes(), full.job.ranks,
      server::traits_on(full.device.device), stop, full.job.spec.resources().nodes() <= 1);
  fit.set_bytes_short(plan_bytes - room->plan_bytes_max());
  fit.set_message(server::shortage_text(plan_bytes, *room) + "; " + describe(advice));
  set_advice(advice, fit);
  return fit;
}

Devices FormerPlanner::devices_for(const v1::JobSpec& spec) {
  const ClusterConfig* cluster = find_cluster(parts_.config.clusters, spec.resources().cluster());
  return cluster != nullptr ? devices_of(*cluster) : devices();
}

StepTimeOn FormerPlanner::times_of(const v1::JobSpec& spec, const Devices& devices) const {
  return [&, this](const Device& device, const RunWork& work) {
    const v1::Resources& resources = spec.resources();
    if (devices.cluster.empty()) {
      return parts_.forecaster.step_time(device, resources.threads(), spec.recipe().precision(),
                                         work);
    }
    return parts_.cluster_rates.step_time(
        cluster_query(spec, std::make_shared<RunWork>(work), /*plan_key=*/"", 0));
  };
}

Devices FormerPlanner::devices() {
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

Status FormerPlanner::add_forecasts(const CheckedJob& job, const Devices& devices,
                                    const KeptPlan& planned, DeviceTraits traits, v1::RunPlan& plan,
                                    const std::stop_token& stop) {
  if (!devices.cluster.empty()) {
    plan.clear_forecasts();
    ClusterQuery query =
        cluster_query(job.spec, planned.work, planned.key, server::bytes_on(traits, plan.memory()));
    query.precision = plan.precision();
    add_cluster_forecast(parts_.cluster_rates, query, plan);
    return {};
  }
  ForecastQuery query;
  query.threads = job.spec.resources().threads();
  query.gpus = job.gpus;
  query.precision = plan.precision();
  query.plan_bytes = total_bytes(plan.memory());
  query.bytes_on_cpu = bytes_on_cpu(plan.memory());
  query.key = planned.key + "/" + std::to_string(query.threads) + "/" +
              std::to_string(static_cast<int>(job.wish)) + "/" + std::to_string(query.plan_bytes);
  // The work on each kind of device: other passes ran over the graph.
  const auto work_on = [&](Processor processor) -> Result<std::shared_ptr<const RunWork>> {
    if (traits.processor == processor) return planned.work;
    const DeviceTraits other = {processor == Processor::kGpu ? kCudaAlignment : kHostAlignment,
                                processor};
    ASSIGN_OR_RETURN(const KeptPlan kept, plan_on_dataset(job.spec, job.dataset, other, stop));
    return kept.work;
  };
  if (job.wish != DeviceWish::kGpu && job.gpus == 1) {
    ASSIGN_OR_RETURN(query.cpu, work_on(Processor::kCpu));
  }
  if (server::may_get_gpu(job.wish, devices)) {
    ASSIGN_OR_RETURN(query.gpu, work_on(Processor::kGpu));
  }
  const std::vector<v1::Forecast> forecasts = parts_.forecaster.forecast(query, devices);
  plan.mutable_forecasts()->Assign(forecasts.begin(), forecasts.end());
  if (const std::string advice = forecast_advice(forecasts); !advice.empty()) {
    plan.set_device_advice(plan.device_advice() + " " + advice);
  }
  const ClusterQuestion clusters{parts_.config.clusters, job.spec,
                                 job.threads_named,      planned.key,
                                 query.bytes_on_cpu,     query.plan_bytes};
  ASSIGN_OR_RETURN(const std::string faster,
                   faster_clusters(parts_.cluster_rates, clusters, forecasts, work_on));
  plan.set_device_advice(plan.device_advice() + faster);
  return {};
}

Result<FormerPlanner::KeptPlan> FormerPlanner::plan_on_dataset(const v1::JobSpec& spec,
                                                               const Dataset& dataset,
                                                               DeviceTraits traits,
                                                               const std::stop_token& stop) {
  const std::string key = plan_key(spec, dataset, traits);
  {
    const MutexLock lock(mu_);
    if (const auto it = plans_.find(key); it != plans_.end()) {
      newest_.splice(newest_.begin(), newest_, it->second);
      return *it->second;
    }
  }
  ASSIGN_OR_RETURN(const EngineSpec engine, to_engine(spec));
  ASSIGN_OR_RETURN(const DatasetSchema schema, schema_of(dataset.digest));
  ASSIGN_OR_RETURN(const RunPlan plan, plan_run(engine.model, engine.recipe, schema,
                                                ranks_of(spec.resources()), traits, stop));
  KeptPlan kept{key, to_proto(plan), std::make_shared<RunWork>(plan.work)};

  const MutexLock lock(mu_);
  if (!plans_.contains(key)) {
    newest_.push_front(kept);
    plans_[key] = newest_.begin();
    if (newest_.size() > kPlansKeptMax) {
      plans_.erase(newest_.back().key);
      newest_.pop_back();
    }
  }
  return kept;
}

Result<v1::JobPlan> FormerPlanner::answer(const v1::PlanJobRequest& request, const Devices& devices,
                                          const Result<int64_t>& workspace,
                                          const std::stop_token& stop) {
  auto planned = plan_layers(request, devices, stop);
  if (!planned.ok()) return planned.error();
  if (Status s = server::check_satisfiable(planned->job.wish, planned->job.gpus, devices); !s.ok())
    return s.error();
  const server::DeviceChoice choice = planned->device;
  planned->plan.set_device(choice.device);
  planned->plan.mutable_run()->set_device_advice(choice.advice);
  if (choice.device == kCpuDevice)
    planned->plan.mutable_run()->mutable_memory()->set_dataset_bytes(0);
  return finish(*planned, devices, workspace, stop);
}

}  // namespace trainyard::server
