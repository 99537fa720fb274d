#include "server/handlers/system_handlers.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "server/config/log.h"
#include "server/handlers/time_range.h"
#include "server/handlers/visibility.h"
#include "server/inventory/drained_inventory.h"
#include "server/processes/process.h"
#include "server/rpc/listener.h"
#include "server/rpc/names.h"
#include "server/sandbox/sandbox.h"
#include "server/scheduler/cluster.h"
#include "server/store/proto_time.h"
#include "server/store/remaining.h"
#include "src/base/join.h"

namespace trainyard::server {

std::string drain_text(const DeviceDrain& drain, bool with_owner) {
  return "Drained by " + (with_owner ? drain.owner : "an operator") +
         (drain.reason.empty() ? "" : ": " + drain.reason) + ".";
}

namespace {

constexpr const char* kCpuName = "devices/cpu";
constexpr size_t kReasonMax = 256;
constexpr size_t kNamesShownMax = 16;

v1::DeviceDrain to_proto(const DeviceDrain& drain, const Visibility& visible) {
  v1::DeviceDrain out;
  out.set_reason(drain.reason);
  if (visible.sees_all()) out.set_owner(drain.owner);
  *out.mutable_time() = to_timestamp(drain.time_us);
  out.set_vacate(drain.vacate);
  return out;
}

v1::Device to_proto(const Device& device) {
  v1::Device out;
  out.set_name(device.name);
  out.set_kind(static_cast<v1::Device::Kind>(device.kind));
  out.set_model(device.model);
  out.set_health(static_cast<v1::Device::Health>(device.health));
  out.set_reason(device.reason);
  out.set_memory_bytes(device.memory_bytes);
  out.set_memory_used_bytes(device.memory_used_bytes);
  out.set_slots(device.slots);
  out.set_overhead_bytes(device.overhead_bytes);
  out.set_cores(device.cores);
  out.set_faults(device.faults_reported);
  if (device.utilisation_percent) out.set_utilisation_percent(*device.utilisation_percent);
  if (device.temperature_celsius) out.set_temperature_celsius(*device.temperature_celsius);
  if (device.power_watts) out.set_power_watts(*device.power_watts);
  if (device.power_limit_watts) out.set_power_limit_watts(*device.power_limit_watts);
  return out;
}

/// Counts the jobs that the caller may see.
Result<JobCounts> count_jobs(const SystemParts& parts, const Principal& caller) {
  if (parts.people.server_role(caller) >= ServerRole::kOperator) return parts.store.jobs().count();
  return parts.store.jobs().count(parts.people.projects(caller));
}

Result<v1::ServerInfo> get_server_info(const SystemParts& parts, const v1::GetServerInfoRequest&,
                                       const CallInfo& call) {
  ASSIGN_OR_RETURN(const JobCounts counts, count_jobs(parts, call.principal));
  v1::ServerInfo info;
  info.set_version(TRAINYARD_VERSION);
  info.mutable_start_time()->set_seconds(parts.start_time_us / 1'000'000);
  info.mutable_start_time()->set_nanos(
      static_cast<int32_t>(parts.start_time_us % 1'000'000 * 1000));
  info.set_jobs_queued(counts.queued);
  info.set_jobs_running(counts.starting + counts.running);
  info.set_draining(parts.draining);
  info.set_upload_bytes_max(parts.config.upload_bytes_max);
  info.set_message_bytes_max(kMessageBytesMax);
  const bool sandboxed = parts.config.sandbox != SandboxMode::kOff;
  info.set_sandbox(sandboxed ? describe(probe_sandbox_host()) : "off");
  for (const std::string& warning : parts.warnings) info.add_warnings(warning);
  if (const std::optional<std::string> low = parts.disk.warning()) info.add_warnings(*low);
  if (parts.store.is_full()) {
    info.add_warnings(
        "The disk of the state folder is full: metrics and checkpoints of running jobs are not "
        "stored until space is freed.");
  }
  if (Status s = parts.store.health(); !s.ok()) info.add_warnings(s.error().message);
  return info;
}

/// Takes the names out of the outcomes of jobs that the caller may not see.
void hide_jobs(const Visibility& visible, v1::DeviceForecasts& forecasts) {
  for (v1::ForecastOutcome& outcome : *forecasts.mutable_newest()) {
    if (visible.sees_name(outcome.job())) continue;
    outcome.clear_job();
    outcome.set_other_project(true);
  }
}

v1::ClusterJob to_proto(const ClusterSight& sight, const Visibility& visible) {
  v1::ClusterJob job;
  job.set_granted(sight.granted);
  if (!sight.granted && sight.start_estimate_us > 0) {
    *job.mutable_start_time() = to_timestamp(sight.start_estimate_us);
  }
  job.set_other_project(!visible.sees(sight.project));
  if (job.other_project()) return job;
  job.set_job(sight.job);
  job.set_handle(sight.handle);
  job.set_nodes(sight.nodes);
  job.set_reason(sight.granted ? "" : sight.reason);
  return job;
}

void add_clusters(const SystemParts& parts, bool forecasts, const Visibility& visible,
                  v1::ListDevicesResponse& response) {
  const Clusters& clusters = parts.dispatcher.clusters();
  for (const ClusterConfig& config : parts.config.clusters) {
    v1::Cluster& out = *response.add_clusters();
    out.set_name(std::string(kClusterPrefix) + config.name);
    out.set_kind(config.kind);
    std::string note = clusters.note(config.name);
    if (const auto refusal = clusters.refusal(config.name)) {
      note += "The cluster accepts no jobs at the moment: " + refusal->text +
              ". The server tries one job " + next_trial_text(refusal->left_us) + ".\n";
    }
    out.set_note(std::move(note));
    out.set_cpus(config.cpus);
    out.set_memory_bytes(config.memory_bytes);
    out.set_gpus_per_node(config.gpus_per_node);
    out.set_gpu_type(config.gpu_type);
    out.set_waiting_max(config.waiting_max);
    parts.cluster_rates.describe(forecasts, out);
    if (out.has_forecasts()) hide_jobs(visible, *out.mutable_forecasts());
    for (const ClusterSight& sight : clusters.sights(config.name)) {
      *out.add_jobs() = to_proto(sight, visible);
    }
  }
}

/// Returns the resident memory of the job's worker in bytes; 0 if it is unknown.
int64_t measured_bytes(const SystemParts& parts, const Job& job) {
  const Result<Attempt> attempt = parts.store.jobs().find_attempt(job.uid, job.attempt);
  if (!attempt.ok() || attempt->pid == 0) return 0;
  return resident_bytes(attempt->pid, attempt->process_start);
}

/// Returns the job's use of a device on which it runs, as the caller may see it.
v1::DeviceUse use_of(const SystemParts& parts, const Job& job, const Device& device,
                     const DeviceView& view, const Visibility& visible) {
  v1::DeviceUse use;
  use.set_other_project(!visible.sees(job.project));
  if (device.kind == DeviceKind::kCpu) use.set_measured_bytes(measured_bytes(parts, job));
  if (!use.other_project()) {
    use.set_job(job.name());
    if (job.state == JobState::kRunning) {
      const Remaining pace = remaining_of(job.plan, job.device(), job.progress,
                                          parts.dispatcher.jobs_sharing_devices(job.uid));
      use.set_forecast_share(pace.forecast_share);
      use.set_bound_share(pace.bound_share);
      use.set_held_back_by(pace.held_back_by);
    }
  }
  const auto placed = std::ranges::find(view.jobs, job.uid, &PlacedJob::uid);
  if (placed == view.jobs.end()) return use;
  use.set_planned_bytes(placed->bytes + device.overhead_bytes);
  if (device.kind == DeviceKind::kCpu) use.set_threads(placed->threads);
  if (placed->end.known()) *use.mutable_end() = to_proto(placed->end);
  return use;
}

void add_project_devices(const SystemParts& parts, const Visibility& visible,
                         v1::ListDevicesResponse& response) {
  for (const auto& [project, list] : parts.people.project_devices()) {
    if (list.empty() || !visible.sees(project)) continue;
    v1::ProjectDevices& out = *response.add_project_devices();
    out.set_project("projects/" + project);
    out.mutable_devices()->Assign(list.begin(), list.end());
  }
}

Result<v1::ListDevicesResponse> list_visible(const SystemParts& parts,
                                             const v1::ListDevicesRequest& request,
                                             const Visibility& visible) {
  const Devices devices = parts.inventory.read();
  ASSIGN_OR_RETURN(const std::vector<Job> jobs, parts.store.jobs().list_active());
  const std::vector<DeviceView> views = parts.dispatcher.devices(devices.devices);
  ASSIGN_OR_RETURN(std::vector<DeviceDrain> drains, parts.store.drains().list());
  v1::ListDevicesResponse response;
  response.set_note(devices.note);
  for (size_t i = 0; i < views.size(); ++i) {
    const Device& device = devices.devices[i];
    const DeviceView& view = views[i];
    v1::Device& out = *response.add_devices() = to_proto(device);
    out.set_others_bytes(view.others_bytes);
    for (const Job& job : jobs) {
      const bool holds = std::ranges::find(job.devices, device.name) != job.devices.end();
      if (!holds) continue;
      *out.add_uses() = use_of(parts, job, device, view, visible);
      if (visible.sees(job.project)) out.add_jobs(job.name());
    }
    if (request.forecasts()) {
      *out.mutable_forecasts() = parts.forecaster.describe(device);
      hide_jobs(visible, *out.mutable_forecasts());
    }
    const auto drain = std::ranges::find(drains, drain_key(device), &DeviceDrain::device);
    if (drain == drains.end()) continue;
    *out.mutable_drain() = to_proto(*drain, visible);
    out.set_reason(drain_text(*drain, visible.sees_all()));
    drains.erase(drain);
  }
  add_clusters(parts, request.forecasts(), visible, response);
  add_project_devices(parts, visible, response);
  // Absent devices, which stay drained until they come back.
  for (const DeviceDrain& drain : drains) {
    v1::Device& out = *response.add_devices();
    out.set_name(drain.name);
    out.set_kind(drain.name == kCpuName ? v1::Device::CPU : v1::Device::GPU);
    out.set_model(drain.model);
    out.set_health(v1::Device::UNKNOWN);
    out.set_reason("The device is absent. " + drain_text(drain, visible.sees_all()));
    *out.mutable_drain() = to_proto(drain, visible);
  }
  return response;
}

Result<v1::ListDevicesResponse> list_devices(const SystemParts& parts,
                                             const v1::ListDevicesRequest& request,
                                             const CallInfo& call) {
  return list_visible(parts, request, {parts.people, call.principal});
}

Result<v1::Device> get_device(const SystemParts& parts, const std::string& name,
                              const CallInfo& call) {
  ASSIGN_OR_RETURN(const v1::ListDevicesResponse list, list_devices(parts, {}, call));
  std::vector<std::string> names;
  for (const v1::Device& device : list.devices()) {
    if (device.name() == name) return device;
    if (names.size() < kNamesShownMax) names.push_back(device.name());
  }
  const bool more = names.size() < static_cast<size_t>(list.devices_size());
  Error e = field_error("DEVICE_NOT_FOUND", "name",
                        "there is no device " + name + ", expected " +
                            (names.size() > 1 ? "one of " : "") + joined(names, ", ") +
                            (more ? " and others" : ""));
  e.code = ErrorCode::kNotFound;
  return e;
}

/// Returns the key by which the store knows the device (drain_key()).
Result<std::string> key_of(const SystemParts& parts, const std::string& name) {
  for (const Device& device : parts.inventory.read().devices) {
    if (device.name == name) return drain_key(device);
  }
  ASSIGN_OR_RETURN(const std::vector<DeviceDrain> drains, parts.store.drains().list());
  const auto drain = std::ranges::find(drains, name, &DeviceDrain::name);
  return drain == drains.end() ? name : drain->device;
}

Result<v1::Device> drain_device(const SystemParts& parts, const v1::DrainDeviceRequest& request,
                                const CallInfo& call) {
  if (Status s = check_device_name(request.name()); !s.ok()) return s.error();
  const std::string& reason = request.reason();
  const bool plain = std::ranges::none_of(
      reason, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (reason.size() > kReasonMax || !plain) {
    return field_error(
        "FIELD_OUT_OF_RANGE", "reason",
        std::to_string(reason.size()) + " bytes, expected at most 256 without control characters");
  }
  ASSIGN_OR_RETURN(const v1::Device known, get_device(parts, request.name(), call));
  DeviceDrain drain;
  drain.name = known.name();
  drain.model = known.model();
  drain.reason = reason;
  drain.owner = call.principal.person;
  drain.vacate = request.vacate();
  ASSIGN_OR_RETURN(drain.device, key_of(parts, known.name()));
  if (Status s = parts.store.drains().put(drain); !s.ok()) return s.error();
  if (Status s = parts.drains_changed(); !s.ok()) return s.error();
  spdlog::info("event=device_drained {} {} vacate={} {}", kv("device", drain.name),
               kv("caller", call.principal.text()), drain.vacate, kv("reason", reason));
  return get_device(parts, request.name(), call);
}

Result<v1::Device> resume_device(const SystemParts& parts, const v1::ResumeDeviceRequest& request,
                                 const CallInfo& call) {
  if (Status s = check_device_name(request.name()); !s.ok()) return s.error();
  ASSIGN_OR_RETURN(v1::Device known, get_device(parts, request.name(), call));
  // The name may occur twice: for the device that has it now, and for one that is absent.
  const Devices devices = parts.inventory.read();
  ASSIGN_OR_RETURN(const std::vector<DeviceDrain> drains, parts.store.drains().list());
  bool drained = false;
  for (const DeviceDrain& drain : drains) {
    const auto device = std::ranges::find(devices.devices, drain.device, drain_key);
    if ((device != devices.devices.end() ? device->name : drain.name) != request.name()) continue;
    if (Status s = parts.store.drains().remove(drain.device); !s.ok()) return s.error();
    drained = true;
  }
  if (!drained) return known;
  if (Status s = parts.drains_changed(); !s.ok()) return s.error();
  spdlog::info("event=device_resumed {} {}", kv("device", known.name()),
               kv("caller", call.principal.text()));
  Result<v1::Device> device = get_device(parts, request.name(), call);
  if (device.ok() || device.error().reason != "DEVICE_NOT_FOUND") return device;
  known.clear_drain();  // the device was absent
  known.set_reason("The device is absent.");
  return known;
}

v1::AuditEntry to_proto(const AuditEntry& entry) {
  v1::AuditEntry out;
  out.set_number(entry.number);
  *out.mutable_time() = to_timestamp(entry.time_us);
  out.set_caller(entry.caller);
  out.set_address(entry.address);
  out.set_action(entry.action);
  out.set_object(entry.object);
  out.set_result(entry.result);
  return out;
}

Result<v1::ListAuditResponse> list_audit(const SystemParts& parts,
                                         const v1::ListAuditRequest& request) {
  AuditQuery query;
  query.caller = request.caller();
  query.action = request.action();
  query.object = request.object();
  ASSIGN_OR_RETURN(query.since_us, from_timestamp("since_time", request.since_time()));
  ASSIGN_OR_RETURN(query.until_us, from_timestamp("until_time", request.until_time()));
  query.page_size = request.page_size();
  query.page_token = request.page_token();
  ASSIGN_OR_RETURN(const AuditPage page, parts.store.audit().list(query));
  v1::ListAuditResponse response;
  for (const AuditEntry& entry : page.entries) *response.add_entries() = to_proto(entry);
  response.set_next_page_token(page.next_page_token);
  return response;
}

}  // namespace

void add_system_rows(Methods& rows, const SystemParts& parts) {
  rows.add("GetServerInfo", parts, &get_server_info);
  rows.add("ListDevices", parts, &list_devices);
  rows.add("DrainDevice", parts, &drain_device);
  rows.add("ResumeDevice", parts, &resume_device);
  rows.add("ListAudit", parts, &list_audit);
}

}  // namespace trainyard::server
