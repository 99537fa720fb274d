#include "server/store/job.h"

#include <algorithm>
#include <utility>

#include "server/store/array.h"
#include "server/store/proto_time.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr std::string_view kCpu = "devices/cpu";

}  // namespace

std::string Job::devices_text() const {
  std::string text;
  for (const std::string& device : devices) text += (text.empty() ? "" : ", ") + device;
  return text;
}

JobBrief brief_of(const Job& job) {
  JobBrief brief{job.uid,
                 job.order,
                 job.state,
                 job.priority,
                 job.cancel_requested,
                 job.spec.resources(),
                 job.devices,
                 job.workers_lost,
                 job.retry_time_us};
  brief.owner = job.owner;
  brief.waits_for = job.waits_for;
  brief.run_time_us = job.run_time_us;
  brief.running_since_us = job.running_since_us;
  brief.id = job.id;
  brief.project = job.project;
  brief.time_us = job.event_time_us;
  brief.bf16 = job.spec.recipe().precision() == v1::Recipe::BF16;
  brief.project = job.project;
  set_needs(job.plan, job.progress, job.checkpoint_step, brief);
  return brief;
}

int32_t devices_wanted(const v1::Resources& resources) {
  const int32_t nodes = resources.has_nodes() ? std::max(1, resources.nodes()) : 1;
  const bool on_gpus = resources.device() == v1::Resources::GPU && resources.has_gpus();
  return nodes * (on_gpus ? std::max(1, resources.gpus()) : 1);
}

int64_t count_devices(const std::vector<std::string>& devices, const v1::Resources& resources) {
  const bool on_cluster = !devices.empty() && devices.front().starts_with(kClusterPrefix);
  return on_cluster ? devices_wanted(resources) : std::ssize(devices);
}

const v1::Forecast* forecast_on(const v1::RunPlan& plan, std::string_view device) {
  const bool on_cpu = device == kCpu;
  const v1::Forecast* only = nullptr;
  bool several = false;
  for (const v1::Forecast& f : plan.forecasts()) {
    if (f.device() == device) return &f;
    if ((f.device() == kCpu) != on_cpu) continue;
    several = only != nullptr;
    only = &f;
  }
  return several ? nullptr : only;
}

void set_needs(const v1::RunPlan& plan, const v1::Progress& progress, int64_t checkpoint_step,
               JobBrief& brief) {
  const v1::MemoryPlan& m = plan.memory();
  const int64_t allocation = m.parameter_bytes() + m.state_bytes() + m.optimizer_bytes() +
                             m.gradient_bytes() + m.activation_bytes() + m.input_bytes() +
                             m.workspace_bytes();
  brief.on_cpu.bytes = allocation + m.host_bytes();
  // Only a GPU keeps the dataset resident. It has a copy of mapped parameters, of twice their size.
  brief.on_gpu.bytes = allocation + m.dataset_bytes() + 2 * m.mapped_bytes();
  if (m.mapped_bytes() > 0) brief.mapped = {m.mapped_parts(), m.mapped_bytes()};
  const double total = static_cast<double>(plan.steps_total());
  const int64_t step = brief.state == JobState::kRunning ? progress.step() : checkpoint_step;
  const double left = total > 0 ? std::clamp(1 - static_cast<double>(step) / total, 0.0, 1.0) : 1;
  // For a job with devices only the forecast for its device counts. Before that, the job may get
  // any model of GPU, so the range covers the forecasts for all of them.
  const v1::Forecast* const its = is_active(brief.state) && !brief.devices.empty()
                                      ? forecast_on(plan, brief.devices.front())
                                      : nullptr;
  for (const v1::Forecast& f : plan.forecasts()) {
    if (f.total_seconds() <= 0) continue;
    const bool on_cpu = f.device() == kCpu;
    if (its != nullptr && &f != its && (its->device() == kCpu) == on_cpu) continue;
    DeviceBrief& on = on_cpu ? brief.on_cpu : brief.on_gpu;
    if (on.rest_s > 0) {  // set already, from another model of GPU
      on.rest_high_s = std::max(on.rest_high_s, f.total_seconds_high() * left);
      continue;
    }
    on.rest_low_s = f.total_seconds_low() * left;
    on.rest_s = f.total_seconds() * left;
    on.rest_high_s = std::max(f.total_seconds(), f.total_seconds_high()) * left;
  }
}

v1::Job to_proto(Job job) {
  v1::Job out;
  out.set_name(job.name());
  out.set_uid(job.uid);
  *out.mutable_spec() = std::move(job.spec);
  out.set_state(static_cast<v1::JobState>(job.state));
  out.set_reason(job.reason);
  out.set_message(job.message);
  out.set_cancel_requested(job.cancel_requested);
  out.set_attempt(job.attempt);
  out.set_device(job.device());
  out.mutable_devices()->Add(job.devices.begin(), job.devices.end());
  *out.mutable_create_time() = to_timestamp(job.create_time_us);
  if (job.start_time_us != 0) *out.mutable_start_time() = to_timestamp(job.start_time_us);
  if (job.end_time_us != 0) *out.mutable_end_time() = to_timestamp(job.end_time_us);
  *out.mutable_progress() = std::move(job.progress);
  *out.mutable_plan() = std::move(job.plan);
  if (!job.model.empty()) out.set_model("projects/" + job.project + "/models/" + job.model);
  out.set_newest_seq(job.newest_seq);
  out.set_checkpoint_step(job.checkpoint_step);
  out.set_priority(job.priority);
  out.set_pause_requested(job.pause_requested);
  out.set_events_thinned(has_thinned_events(job.events_thinned));
  if (!job.origin.job().empty()) *out.mutable_origin() = std::move(job.origin);
  out.set_owner(job.owner);
  if (job.array > 0) {
    out.set_array("projects/" + job.project + "/arrays/" + std::string(array_id_of(job.id)));
    out.set_array_index(job.array_index);
    *out.mutable_array_values() = std::move(*job.array_values.mutable_values());
  }
  int64_t run_us = job.run_time_us;
  // Counts a running job's time up to its newest event, like its other numbers.
  if (job.running_since_us != 0) run_us += job.event_time_us - job.running_since_us;
  out.set_run_seconds(static_cast<double>(run_us) / 1e6);
  return out;
}

Error state_conflict(const Job& job, const std::string& why) {
  Error e = make_error(
      ErrorCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
      "job " + quoted_value(job.id) + " is " + std::string(name_of(job.state)) + ": " + why);
  e.metadata["state"] = name_of(job.state);
  return e;
}

void AttemptUpdate::add_result(const v1::Outcome& outcome) {
  // A worker's reports are untrusted, so the stored part of them is bounded.
  constexpr size_t kBaselinesMax = 64, kWarningsMax = 16, kWarningBytesMax = 4096;
  step = outcome.steps_done();
  if (outcome.has_times()) times = outcome.times();
  for (const auto& [key, value] : outcome.final_metrics()) final_metrics.emplace_back(key, value);
  confusion_matrices.assign(outcome.confusion_matrices().begin(),
                            outcome.confusion_matrices().end());
  for (const v1::Baseline& baseline : outcome.baselines()) {
    if (baselines.size() < kBaselinesMax) baselines.push_back(baseline);
  }
  for (const std::string& warning : outcome.warnings()) {
    if (warnings.size() < kWarningsMax && warning.size() <= kWarningBytesMax) {
      warnings.push_back(warning);
    }
  }
}

AttemptUpdate update_from_report(std::string job_uid, int32_t attempt,
                                 const v1::WorkerReport& report) {
  AttemptUpdate update;
  update.job_uid = std::move(job_uid);
  update.attempt = attempt;
  update.report_number = report.number();
  switch (report.kind_case()) {
    case v1::WorkerReport::kStarted: {
      update.plan = report.started().plan();
      Move move;
      move.to = JobState::kRunning;
      move.reason = "RUNNING";
      move.resumed_from_step = report.started().resumed_from_step();
      move.message = move.resumed_from_step == 0
                         ? "Training."
                         : "Training, resumed from the checkpoint of step " +
                               std::to_string(move.resumed_from_step) + ".";
      update.move = std::move(move);
      break;
    }
    case v1::WorkerReport::kMetrics:
      *update.events.emplace_back().mutable_metrics() = report.metrics();
      break;
    case v1::WorkerReport::kCheckpoint:
      *update.events.emplace_back().mutable_checkpoint() = report.checkpoint();
      break;
    case v1::WorkerReport::kLog:
      *update.events.emplace_back().mutable_log() = report.log();
      update.events.back().mutable_log()->clear_from_server();
      break;
    case v1::WorkerReport::kHeartbeat:
      update.step = report.heartbeat().step();
      update.samples_per_second = report.heartbeat().samples_per_second();
      if (report.heartbeat().has_times()) update.times = report.heartbeat().times();
      break;
    case v1::WorkerReport::kOutcome:
      update.add_result(report.outcome());
      break;
    case v1::WorkerReport::kGenerated:  // never sent by an attempt of a job
    case v1::WorkerReport::kAnswers:
    case v1::WorkerReport::KIND_NOT_SET:
      break;
  }
  return update;
}

}  // namespace trainyard::server
