#include "server/service/job_planner.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cmath>

#include "proto/convert/run.h"
#include "proto/convert/spec.h"
#include "server/scheduler/scheduler.h"
#include "server/service/digest.h"
#include "server/service/names.h"
#include "server/service/status.h"
#include "src/base/text.h"
#include "src/base/violations.h"
#include "src/data/dataset.h"
#include "src/train/trainer.h"

namespace trainyard::server {
namespace {

constexpr int kLabelsMax = 32;
constexpr size_t kLabelKeyMax = 63;
constexpr size_t kLabelValueMax = 256;

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
          "the key " + quoted_value(key) + " is not 1 to 63 characters without control characters");
    } else if (value.size() > kLabelValueMax || has_control(value)) {
      violations.add("LABEL_INVALID", "labels[" + key + "]",
                     "the value is not up to 256 characters without control characters");
    }
  }
}

DeviceWish wish_of(const v1::JobSpec& spec) {
  switch (spec.resources().device()) {
    case v1::Resources::CPU:
      return DeviceWish::kCpu;
    case v1::Resources::GPU:
      return DeviceWish::kGpu;
    default:
      return DeviceWish::kAuto;
  }
}

bool may_use(DeviceWish wish, const Device& device) {
  if (device.kind == DeviceKind::kGpu) return wish != DeviceWish::kCpu && device.schedulable;
  return wish != DeviceWish::kGpu;
}

int64_t total_bytes(const v1::MemoryPlan& m) {
  return m.parameter_bytes() + m.state_bytes() + m.optimizer_bytes() + m.gradient_bytes() +
         m.activation_bytes() + m.input_bytes() + m.workspace_bytes();
}

/// The model whose weights the job begins with must be there.
Status check_initial_weights(const v1::JobSpec& spec, Store& store) {
  if (!spec.recipe().has_initial_weights()) return {};
  const v1::InitialWeights& weights = spec.recipe().initial_weights();
  const bool job = !weights.job().empty();
  const std::string field = std::string("recipe.initial_weights.") + (job ? "job" : "model");
  ASSIGN_OR_RETURN(const std::string id,
                   parse_id_or_name(job ? Collection::kJobs : Collection::kModels, field,
                                    job ? weights.job() : weights.model()));
  if (store.models().find("default", id).ok()) return {};
  return make_error(
      ErrorCode::kNotFound, "MODEL_NOT_FOUND",
      field + ": there is no model " + id + (job ? "; a job has one when it has SUCCEEDED" : ""));
}

/// Refuses a job whose memory plan fits on none of the devices that it may use.
Status check_memory(DeviceWish wish, const v1::RunPlan& plan, const Devices& devices) {
  int64_t largest = 0;
  for (const Device& device : devices.devices) {
    if (may_use(wish, device)) largest = std::max(largest, device.memory_bytes);
  }
  const int64_t needed = total_bytes(plan.memory());
  if (largest == 0 || needed <= largest) return {};
  Error e = make_error(ErrorCode::kInvalidArgument, "RESOURCES_IMPOSSIBLE",
                       "the job needs " + human_bytes(needed) + " of memory, " +
                           human_bytes(needed - largest) +
                           " more than the largest device it may use has (" + human_bytes(largest) +
                           "); a smaller batch_size or model would fit");
  e.metadata = {{"bytes_needed", std::to_string(needed)},
                {"bytes_largest_device", std::to_string(largest)},
                {"bytes_short", std::to_string(needed - largest)}};
  return e;
}

}  // namespace

Result<PlannedJob> JobPlanner::plan(const v1::JobSpec& spec) {
  Violations violations;
  check_labels(spec, violations);
  if (spec.dataset().name().empty()) {
    violations.add("FIELD_REQUIRED", "dataset.name", "is missing, expected a dataset's id");
  }
  // The engine's own checks come first, so that a user learns of all problems of the spec at once
  // and of a missing dataset only then.
  if (Result<EngineSpec> engine = to_engine(spec); !engine.ok()) violations.add(engine.error());
  if (!violations.empty()) return violations.to_error();

  PlannedJob planned;
  ASSIGN_OR_RETURN(planned.dataset_id,
                   parse_id_or_name(Collection::kDatasets, "dataset.name", spec.dataset().name()));
  ASSIGN_OR_RETURN(const Dataset dataset,
                   service_.store.datasets().find("default", planned.dataset_id));
  if (dataset.state != v1::Dataset::READY) {
    const bool failed = dataset.state == v1::Dataset::FAILED;
    Error e = make_error(
        ErrorCode::kFailedPrecondition, "DATASET_NOT_READY",
        failed ? "dataset " + planned.dataset_id + " could not be ingested: " + dataset.message
               : "dataset " + planned.dataset_id +
                     " is still being ingested; submit again when it is READY");
    e.metadata["dataset"] = dataset.name();
    return e;
  }
  planned.spec = spec;
  planned.spec.mutable_dataset()->set_name(dataset.name());
  // Recorded with the job: equal thread counts give equal bits, whatever the server's default
  // becomes.
  if (!spec.resources().has_threads()) {
    planned.spec.mutable_resources()->set_threads(service_.config.threads_per_job);
  }
  if (Status s = check_initial_weights(spec, service_.store); !s.ok()) return s.error();
  ASSIGN_OR_RETURN(planned.plan, plan_on_dataset(spec, dataset));

  const Devices devices = this->devices();
  const DeviceWish wish = wish_of(spec);
  if (Status s = check_satisfiable(wish, devices); !s.ok()) return s.error();
  if (Status s = check_memory(wish, planned.plan, devices); !s.ok()) return s.error();
  planned.plan.set_device_advice(device_advice(spec, devices));
  return planned;
}

Devices JobPlanner::devices() {
  const int64_t now_us = service_.clock.steady_us();
  {
    const std::lock_guard lock(mu_);
    if (devices_time_us_ != 0 && now_us - devices_time_us_ < kDevicesKeptUs) return devices_;
  }
  Devices fresh = service_.inventory.read();
  const std::lock_guard lock(mu_);
  devices_ = fresh;
  devices_time_us_ = now_us;
  return fresh;
}

Result<v1::RunPlan> JobPlanner::plan_on_dataset(const v1::JobSpec& spec, const Dataset& dataset) {
  v1::JobSpec numbers;  // what the plan depends on
  *numbers.mutable_model() = spec.model();
  *numbers.mutable_recipe() = spec.recipe();
  const std::string key = dataset.digest + digest_of(numbers);
  {
    const std::lock_guard lock(mu_);
    if (const auto it = plans_.find(key); it != plans_.end()) {
      newest_.splice(newest_.begin(), newest_, it->second);
      return it->second->second;
    }
  }
  ASSIGN_OR_RETURN(const EngineSpec engine, to_engine(spec));
  const Result<DatasetSchema> schema = read_schema(service_.paths.dataset(dataset.digest));
  if (!schema.ok()) return internal_error("SubmitJob", schema.error().message);  // it was READY
  ASSIGN_OR_RETURN(const RunPlan plan, plan_run(engine.model, engine.recipe, *schema));
  v1::RunPlan on_wire = to_proto(plan);

  const std::lock_guard lock(mu_);
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

std::string JobPlanner::device_advice(const v1::JobSpec& spec, const Devices& devices) const {
  const DeviceWish wish = wish_of(spec);
  if (wish == DeviceWish::kCpu) return "The CPU, as asked.";
  for (const Device& device : devices.devices) {
    if (device.kind == DeviceKind::kGpu && device.schedulable) {
      return wish == DeviceWish::kGpu ? "A GPU, as asked." : "A GPU (" + device.model + ").";
    }
  }
  return devices.note.empty() ? "The CPU: this server has no GPU." : "The CPU: " + devices.note;
}

}  // namespace trainyard::server
