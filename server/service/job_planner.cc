#include "server/service/job_planner.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "proto/convert/run.h"
#include "proto/convert/spec.h"
#include "server/scheduler/scheduler.h"
#include "server/service/digest.h"
#include "server/service/names.h"
#include "server/service/status.h"
#include "src/base/mutex.h"
#include "src/base/stop.h"
#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/data/dataset.h"
#include "src/runtime/cuda_error.h"
#include "src/train/job_plan.h"
#include "src/train/weight_match.h"

namespace trainyard::server {
namespace {

constexpr int kLabelsMax = 32;
constexpr size_t kLabelKeyMax = 63;
constexpr size_t kLabelValueMax = 256;
constexpr std::string_view kCpuDevice = "devices/cpu";
constexpr size_t kDumpBytesMax = 3 << 20;  // a message may have 4 MiB

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

void check_labels(const v1::JobSpec& spec, Violations& violations) {
  if (spec.labels_size() > kLabelsMax) {
    violations.add("LABEL_INVALID", "labels",
                   std::to_string(spec.labels_size()) + " labels, expected at most " +
                       std::to_string(kLabelsMax));
  }
  for (const auto& [key, value] : spec.labels()) {
    if (key.empty() || key.size() > kLabelKeyMax || has_control(key)) {
      violations.add(
          "LABEL_INVALID", "labels",
          "the key " + quoted_value(key) +
              " is out of range, expected 1 to 63 characters without control characters");
    } else if (value.size() > kLabelValueMax || has_control(value)) {
      violations.add(
          "LABEL_INVALID", "labels[" + key + "]",
          "the value is out of range, expected at most 256 characters without control characters");
    }
  }
}

struct Choice {
  std::string device;
  std::string advice;  // why, in a sentence
  std::string uuid;    // of a GPU
};

/// The model whose weights the job starts from, which must exist.
Result<std::optional<Model>> find_initial_weights(const v1::JobSpec& spec, Store& store) {
  if (!spec.recipe().has_initial_weights()) return std::optional<Model>();
  const v1::InitialWeights& weights = spec.recipe().initial_weights();
  if (!weights.path().empty()) {
    return field_error("FIELD_UNSUPPORTED", "recipe.initial_weights.path",
                       "a path is only for the client; upload the file and name the model");
  }
  const bool job = !weights.job().empty();
  const std::string field = std::string("recipe.initial_weights.") + (job ? "job" : "model");
  ASSIGN_OR_RETURN(const std::string id,
                   parse_id_or_name(job ? Collection::kJobs : Collection::kModels, field,
                                    job ? weights.job() : weights.model()));
  Result<Model> model = store.models().find("default", id);
  if (model.ok() && !(job && model->weights_alone())) {
    return std::optional<Model>(std::move(*model));
  }
  if (!model.ok() && model.error().reason != "MODEL_NOT_FOUND") return model.error();
  return make_error(
      ErrorCode::kNotFound, "MODEL_NOT_FOUND",
      field + ": there is no " +
          (model.ok() ? "job " + id + "; the model of that name has weights only, use model: " + id
                      : "model " + id + (job ? "; a job has one once it has SUCCEEDED" : "")));
}

/// Where the job would start now, as decide() places it.
Choice choose_device(DeviceWish wish, int32_t gpus, int64_t batch_size, const Devices& devices) {
  if (wish != DeviceWish::kCpu) {
    for (const Device& device : devices.devices) {
      if (device.kind != DeviceKind::kGpu || !device.schedulable) continue;
      const auto count = std::ranges::count_if(devices.devices, [&](const Device& d) {
        return d.kind == device.kind && alike(d) == alike(device) && d.schedulable;
      });
      if (count < gpus) continue;
      if (gpus > 1) {
        return {device.name,
                std::to_string(gpus) + " GPUs (" + device.model + "), as asked: each computes " +
                    std::to_string(batch_size / gpus) + " of the " + std::to_string(batch_size) +
                    " rows of a batch and needs the memory of this plan.",
                device.uuid};
      }
      return {device.name,
              wish == DeviceWish::kGpu ? "A GPU, as asked." : "A GPU (" + device.model + ").",
              device.uuid};
    }
  }
  Choice cpu{std::string(kCpuDevice), "The CPU, as asked.", ""};
  if (wish != DeviceWish::kCpu) {
    cpu.advice =
        devices.note.empty() ? "The CPU: this server has no GPU." : "The CPU: " + devices.note;
  }
  if (wish == DeviceWish::kGpu) {  // they exist, but are not usable now
    cpu.advice = "No " + (gpus > 1 ? std::to_string(gpus) + " GPUs of one model" : "GPU") +
                 " can be used now; the job would wait. Planned on the CPU.";
  }
  return cpu;
}

/// Whether the job may run on a GPU, now or when one becomes usable again.
bool may_get_gpu(DeviceWish wish, const Devices& devices) {
  return wish != DeviceWish::kCpu && std::ranges::any_of(devices.devices, [](const Device& d) {
           return d.kind == DeviceKind::kGpu;
         });
}

/// The traits to plan with before the device is known; the worker plans again for its own device. A
/// job that may run on a GPU is planned with a GPU's alignment, and for a GPU's processor only if
/// it cannot run on the CPU, which needs more memory.
DeviceTraits traits_for(DeviceWish wish, const Devices& devices) {
  return {may_get_gpu(wish, devices) ? kCudaAlignment : kHostAlignment,
          wish == DeviceWish::kGpu ? Processor::kGpu : Processor::kCpu};
}
DeviceTraits traits_of(const Choice& choice) {
  return choice.device == kCpuDevice ? DeviceTraits{kHostAlignment, Processor::kCpu}
                                     : DeviceTraits{kCudaAlignment, Processor::kGpu};
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
struct JobPlanner::CheckedJob {
  v1::JobSpec spec;  // as accepted
  EngineSpec engine;
  Dataset dataset;
  DeviceWish wish = DeviceWish::kAuto;
  int32_t gpus = 1;
  std::optional<Model> initial_weights;

  /// The weights that would be taken. Nothing if the job needs none, or for those of an older
  /// daemon's job, whose tensors are unknown.
  Result<std::optional<v1::InitialWeightsReport>> plan_weights(const DatasetSchema& schema) const {
    std::optional<v1::InitialWeightsReport> planned;
    if (!initial_weights || initial_weights->tensors.empty()) return planned;
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

struct JobPlanner::FullPlan {
  CheckedJob job;
  DatasetSchema schema;
  Choice device;
  v1::JobPlan plan;
};

Result<JobPlanner::CheckedJob> JobPlanner::check(const v1::JobSpec& spec) const {
  Violations violations;
  check_labels(spec, violations);
  if (spec.dataset().name().empty()) {
    violations.add("FIELD_REQUIRED", "dataset.name", "is missing, expected a dataset's id");
  }
  // The engine's own checks come first, so that a user learns of all problems of the spec at once
  // and of a missing dataset only then.
  CheckedJob job;
  if (Result<EngineSpec> engine = to_engine(spec); engine.ok()) {
    job.engine = std::move(engine).value();
  } else {
    violations.add(engine.error());
  }
  if (!violations.empty()) return violations.to_error();

  ASSIGN_OR_RETURN(const DatasetRef ref,
                   parse_dataset_id_or_name("dataset.name", spec.dataset().name()));
  ASSIGN_OR_RETURN(job.dataset, service_.store.datasets().find_usable("default", ref));
  if (job.dataset.state != v1::Dataset::READY) {
    return not_ready_error(job.dataset, "submit");
  }
  job.spec = spec;
  job.spec.mutable_dataset()->set_name(job.dataset.name());
  // Recorded with the job: the same thread count and precision give the same bits, whatever the
  // defaults become.
  if (!spec.resources().has_threads()) {
    job.spec.mutable_resources()->set_threads(service_.config.threads_per_job);
  }
  job.spec.mutable_recipe()->set_precision(to_proto(job.engine.recipe.precision));
  ASSIGN_OR_RETURN(job.initial_weights, find_initial_weights(spec, service_.store));
  job.wish = wish_of(spec.resources());
  job.gpus = gpus_of(spec.resources());
  return job;
}

std::shared_ptr<const PlannedJob> JobPlanner::find_accepted(const v1::JobSpec& spec) {
  const std::string key = spec.SerializeAsString();
  const int64_t changes = service_.store.datasets().changes();
  const int64_t now_us = service_.clock.steady_us();
  const MutexLock lock(mu_);
  const auto it = accepted_.find(key);
  const bool valid = devices_time_us_ != 0 && now_us - devices_time_us_ < kDevicesKeptUs &&
                     accepted_at_changes_ == changes && it != accepted_.end();
  return valid ? it->second : nullptr;
}

Result<PlannedJob> JobPlanner::plan(const v1::JobSpec& spec, const std::stop_token& stop) {
  if (const auto known = find_accepted(spec)) return *known;
  // Read before the datasets and the devices are: a change meanwhile makes what was found too old.
  const int64_t changes = service_.store.datasets().changes();
  int64_t devices_time_us = 0;
  {
    const MutexLock lock(mu_);
    devices_time_us = devices_time_us_;
  }
  ASSIGN_OR_RETURN(PlannedJob planned, plan_anew(spec, stop));
  std::string key = spec.SerializeAsString();
  // A model can come and go.
  if (key.size() > kAcceptedBytesMax || spec.recipe().has_initial_weights()) return planned;
  auto accepted = std::make_shared<const PlannedJob>(planned);
  const MutexLock lock(mu_);
  if (devices_time_us_ != devices_time_us) return planned;
  if (accepted_at_changes_ != changes || accepted_.size() >= kPlansKeptMax) accepted_.clear();
  accepted_at_changes_ = changes;
  accepted_[std::move(key)] = std::move(accepted);
  return planned;
}

Result<PlannedJob> JobPlanner::plan_anew(const v1::JobSpec& spec, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(CheckedJob job, check(spec));
  PlannedJob planned;
  planned.dataset = job.dataset.ref();
  planned.dataset_digest = job.dataset.digest;
  const Devices devices = this->devices();
  const DeviceTraits traits = traits_for(job.wish, devices);
  ASSIGN_OR_RETURN(planned.plan, plan_on_dataset(spec, job.dataset, traits, stop));
  if (job.initial_weights) {
    planned.initial_model_id = job.initial_weights->id;
    ASSIGN_OR_RETURN(const DatasetSchema schema,
                     read_schema(service_.paths.dataset(job.dataset.digest)));
    ASSIGN_OR_RETURN(auto report, job.plan_weights(schema));
    if (report) *planned.plan.mutable_initial_weights() = std::move(*report);
  }
  if (Status s = check_satisfiable(job.wish, job.gpus, devices); !s.ok()) return s.error();
  // What only a GPU holds.
  if (!may_get_gpu(job.wish, devices)) planned.plan.mutable_memory()->set_dataset_bytes(0);
  if (Status s = make_room(job, devices, *planned.plan.mutable_memory()); !s.ok()) return s.error();
  const int64_t needed = total_bytes(planned.plan.memory());
  ASSIGN_OR_RETURN(const Room room, find_room(job.wish, job.gpus, devices, needed));
  if (room.memory_bytes > 0 && needed > room.plan_bytes_max()) {
    ASSIGN_OR_RETURN(const DatasetSchema schema,
                     read_schema(service_.paths.dataset(job.dataset.digest)));
    const FitAdvice advice = advise_fit(job.engine.model, job.engine.recipe, schema,
                                        room.plan_bytes_max(), job.gpus, traits, stop);
    if (Status s = check_stop(stop); !s.ok()) return s.error();
    Error e = make_error(ErrorCode::kInvalidArgument, "RESOURCES_IMPOSSIBLE",
                         shortage_text(needed, room) + "; " + describe(advice));
    e.metadata = {{"bytes_needed", std::to_string(needed + room.overhead_bytes)},
                  {"bytes_available", std::to_string(room.available_bytes())},
                  {"bytes_short", std::to_string(needed - room.plan_bytes_max())},
                  {"batch_size_that_fits", std::to_string(advice.batch_size)},
                  {"accumulate_steps_that_fit", std::to_string(advice.accumulate_steps)},
                  {"recompute_that_fits", std::string(name_of(advice.recompute))}};
    return e;
  }
  planned.plan.set_device_advice(
      choose_device(job.wish, job.gpus, job.engine.recipe.batch_size, devices).advice);
  planned.spec = std::move(job.spec);
  return planned;
}

Result<JobPlanner::FullPlan> JobPlanner::plan_layers(const v1::PlanJobRequest& request,
                                                     const Devices& devices,
                                                     const std::stop_token& stop) {
  if (!v1::PlanJobRequest::Dump_IsValid(request.dump())) {
    return field_error(
        "FIELD_UNSUPPORTED", "dump",
        std::to_string(request.dump()) + " is not known, expected graph, program or memory");
  }
  FullPlan full;
  ASSIGN_OR_RETURN(full.job, check(request.spec()));
  const Result<DatasetSchema> schema = read_schema(service_.paths.dataset(full.job.dataset.digest));
  if (!schema.ok()) return internal_error("PlanJob", schema.error().message);  // it was READY
  full.schema = *schema;
  full.device =
      choose_device(full.job.wish, full.job.gpus, full.job.engine.recipe.batch_size, devices);
  ASSIGN_OR_RETURN(const JobPlan plan,
                   plan_job(full.job.engine.model, full.job.engine.recipe, full.schema,
                            dump_of(request.dump()), full.job.gpus, traits_of(full.device), stop));
  if (plan.dump.size() > kDumpBytesMax) {
    return make_error(
        ErrorCode::kOutOfRange, "DUMP_TOO_LARGE",
        "the dump has " + human_bytes(static_cast<int64_t>(plan.dump.size())) +
            ", more than the 3 MiB that a message holds; 'trainyard plan --local' prints it");
  }
  full.plan = to_proto(plan);
  ASSIGN_OR_RETURN(auto report, full.job.plan_weights(full.schema));
  if (report) *full.plan.mutable_run()->mutable_initial_weights() = std::move(*report);
  *full.plan.mutable_spec() = full.job.spec;
  full.plan.set_threads(full.job.spec.resources().threads());
  return full;
}

void JobPlanner::plan_in_full(const v1::PlanJobRequest& request, Done<v1::JobPlan> done,
                              const std::stop_token& stop) {
  const Devices devices = this->devices();
  Result<FullPlan> planned = plan_layers(request, devices, stop);
  if (!planned.ok()) return done(std::move(planned).error());
  if (Status s = check_satisfiable(planned->job.wish, planned->job.gpus, devices); !s.ok())
    return done(s.error());
  const Choice choice = planned->device;
  planned->plan.set_device(choice.device);
  planned->plan.mutable_run()->set_device_advice(choice.advice);
  if (choice.device == kCpuDevice)
    planned->plan.mutable_run()->mutable_memory()->set_dataset_bytes(0);

  v1::MeasureTask task;
  *task.mutable_spec() = planned->job.spec;
  task.set_dataset_dir(service_.paths.dataset(planned->job.dataset.digest).string());
  task.set_device(choice.device);
  task.set_threads(planned->plan.threads());
  if (service_.config.time_algorithms) {
    task.set_algorithms_dir(service_.paths.algorithms().string());
  }
  // The answer comes on the thread that watches all workers, which must not compute.
  auto full = std::make_shared<FullPlan>(std::move(planned).value());
  service_.measure.run(std::move(task), choice.uuid,
                       [this, devices, done, full, stop](const Result<int64_t>& workspace) {
                         const bool posted =
                             service_.planning.post([this, devices, done, full, workspace, stop] {
                               done(finish(*full, devices, workspace, stop));
                             });
                         if (!posted) done(service_.draining ? draining_error() : busy_error());
                       });
}

Result<v1::JobPlan> JobPlanner::finish(FullPlan& full, const Devices& devices,
                                       Result<int64_t> workspace,
                                       const std::stop_token& stop) const {
  v1::JobPlan& plan = full.plan;
  if (workspace.ok()) {
    plan.set_workspace_measured(true);
    plan.mutable_run()->mutable_memory()->set_workspace_bytes(*workspace);
  } else if (workspace.error().code == ErrorCode::kInternal ||
             workspace.error().code == ErrorCode::kDeadlineExceeded ||
             workspace.error().reason == kDeviceBusy) {
    plan.add_warnings("the kernels' workspace is unknown: " + workspace.error().message);
  } else {
    return std::move(workspace).error();
  }
  v1::MemoryPlan& memory = *plan.mutable_run()->mutable_memory();
  const bool held = memory.dataset_bytes() > 0;
  if (Status s = make_room(full.job, devices, memory); !s.ok()) return s.error();
  if (held && memory.dataset_bytes() == 0) {
    plan.add_warnings(
        "the GPU has no room for the training rows besides the job: its batches come from the "
        "host");
  }
  *plan.mutable_fit() = fit_of(full, total_bytes(plan.run().memory()), devices, stop);
  if (Status s = check_stop(stop); !s.ok()) return s.error();
  return std::move(plan);
}

Result<Room> JobPlanner::find_room(DeviceWish wish, int32_t gpus, const Devices& devices,
                                   int64_t needed_bytes) const {
  const int64_t cpu_limit = service_.config.cpu_memory_bytes_max;
  // Counts all memory in use as others': most jobs fit even then.
  const Room least = largest_room(wish, gpus, devices, {}, cpu_limit);
  if (least.memory_bytes == 0 || needed_bytes <= least.plan_bytes_max()) return least;
  ASSIGN_OR_RETURN(const std::vector<Job> jobs, service_.store.jobs().list_active());
  return largest_room(wish, gpus, devices, jobs, cpu_limit);
}

Status JobPlanner::make_room(const CheckedJob& job, const Devices& devices,
                             v1::MemoryPlan& memory) const {
  const int64_t needed = total_bytes(memory);
  ASSIGN_OR_RETURN(const Room room, find_room(job.wish, job.gpus, devices, needed));
  if (room.memory_bytes > 0 && needed > room.plan_bytes_max()) memory.set_dataset_bytes(0);
  return {};
}

v1::MemoryFit JobPlanner::fit_of(const FullPlan& full, int64_t plan_bytes, const Devices& devices,
                                 const std::stop_token& stop) const {
  v1::MemoryFit fit;
  fit.set_bytes_needed(plan_bytes);
  const Result<Room> room = find_room(full.job.wish, full.job.gpus, devices, plan_bytes);
  if (room.ok()) fit.set_bytes_needed(plan_bytes + room->overhead_bytes);
  if (!room.ok() || room->memory_bytes == 0) {  // unknown: not held against the job
    fit.set_fits(true);
    return fit;
  }
  fit.set_bytes_available(room->available_bytes());
  fit.set_fits(plan_bytes <= room->plan_bytes_max());
  if (fit.fits()) return fit;
  const FitAdvice advice =
      advise_fit(full.job.engine.model, full.job.engine.recipe, full.schema,
                 room->plan_bytes_max() - full.plan.run().memory().workspace_bytes(), full.job.gpus,
                 traits_of(full.device), stop);
  fit.set_bytes_short(plan_bytes - room->plan_bytes_max());
  fit.set_message(shortage_text(plan_bytes, *room) + "; " + describe(advice));
  set_advice(advice, fit);
  return fit;
}

Devices JobPlanner::devices() {
  const int64_t now_us = service_.clock.steady_us();
  {
    const MutexLock lock(mu_);
    if (devices_time_us_ != 0 && now_us - devices_time_us_ < kDevicesKeptUs) return devices_;
  }
  Devices fresh = service_.inventory.read();
  const MutexLock lock(mu_);
  devices_ = fresh;
  devices_time_us_ = now_us;
  accepted_.clear();
  return fresh;
}

Result<v1::RunPlan> JobPlanner::plan_on_dataset(const v1::JobSpec& spec, const Dataset& dataset,
                                                DeviceTraits traits, const std::stop_token& stop) {
  // What the plan depends on.
  const std::string key = dataset.digest + digest_of(spec.model()) + digest_of(spec.recipe()) +
                          std::to_string(gpus_of(spec.resources())) + "/" +
                          std::to_string(traits.alignment) +
                          (traits.processor == Processor::kGpu ? "/gpu" : "/cpu");
  {
    const MutexLock lock(mu_);
    if (const auto it = plans_.find(key); it != plans_.end()) {
      newest_.splice(newest_.begin(), newest_, it->second);
      return it->second->second;
    }
  }
  ASSIGN_OR_RETURN(const EngineSpec engine, to_engine(spec));
  const Result<DatasetSchema> schema = read_schema(service_.paths.dataset(dataset.digest));
  if (!schema.ok()) return internal_error("SubmitJob", schema.error().message);  // it was READY
  ASSIGN_OR_RETURN(const RunPlan plan, plan_run(engine.model, engine.recipe, *schema,
                                                gpus_of(spec.resources()), traits, stop));
  v1::RunPlan on_wire = to_proto(plan);

  const MutexLock lock(mu_);
  if (!plans_.contains(key)) {
    newest_.emplace_front(key, on_wire);
    plans_[key] = newest_.begin();
    if (newest_.size() > kPlansKeptMax) {
      plans_.erase(newest_.back().first);
      newest_.pop_back();
    }
  }
  return on_wire;
}

}  // namespace trainyard::server
