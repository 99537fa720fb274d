// tests/engine/planning_support.h: a small job and a small machine for the planner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "src/planning/job_plan.h"
#include "src/planning/planner_input.h"

namespace trainyard {

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr DeviceTraits kGpuTraits = {kCudaAlignment, Processor::kGpu};

inline DatasetSchema table() {
  DatasetSchema schema;
  schema.columns.resize(64);
  schema.target.classes = {"a", "b", "c", "d"};
  schema.train_rows = 1000;
  return schema;
}

/// Returns a job of eight layers of 64 units, whose activations outweigh their parameters. If
/// `gpus` is above 0, it requests that number of GPUs.
inline JobToPlan job_of(int32_t gpus) {
  JobToPlan job;
  job.model.preset = "mlp";
  job.model.parameters.set("hidden", std::vector<int64_t>(8, 64));
  job.recipe.epochs = 1;
  job.recipe.batch_size = 512;
  job.recipe.precision = Precision::kFp32;
  job.recipe.optimizer = default_optimizer("adam");
  job.recipe.optimizer.learning_rate = 0.001;
  job.free = {true, true, true};
  job.wish = gpus > 0 ? DeviceWish::kGpu : DeviceWish::kAuto;
  job.gpus = std::max(1, gpus);
  return job;
}

inline RunPlan plan_of(const JobToPlan& job, DeviceTraits traits = kGpuTraits) {
  return plan_run(job.model, job.recipe, table(), job.ranks(), traits).value();
}

/// Returns the memory that the job needs on a GPU after a change to its recipe.
inline int64_t bytes_with(JobToPlan job, const std::function<void(Recipe&)>& change) {
  change(job.recipe);
  return plan_of(job).memory.total();
}

inline Device device_named(const std::string& name, int64_t memory_bytes = 0) {
  Device device;
  device.name = name;
  device.kind = name == kCpuDevice ? DeviceKind::kCpu : DeviceKind::kGpu;
  device.memory_bytes = memory_bytes;
  return device;
}

/// Returns the step time where no rates are known.
inline Result<TimeRange> unknown(const Device&, const RunWork&) {
  return make_error(ErrorCode::kNotFound, "RATE_UNKNOWN", "this server measures no rates");
}

/// Returns a machine with a CPU and `gpus` GPUs of one model.
inline Machine machine_with(int gpus, int64_t gpu_bytes = 0, int64_t cpu_bytes = 0) {
  Machine machine;
  machine.devices.devices.push_back(device_named("devices/cpu", cpu_bytes));
  for (int i = 0; i < gpus; ++i) {
    machine.devices.devices.push_back(device_named("devices/gpu-" + std::to_string(i), gpu_bytes));
  }
  machine.step_time = unknown;
  return machine;
}

}  // namespace trainyard
