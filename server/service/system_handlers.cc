#include "server/service/system_handlers.h"

#include <algorithm>

#include "server/service/listener.h"
#include "server/service/time_range.h"
#include "server/supervisor/process.h"

namespace trainyard::server {

Result<v1::ServerInfo> SystemHandlers::get_server_info(const v1::GetServerInfoRequest&) const {
  ASSIGN_OR_RETURN(const JobCounts counts, service_.store.jobs().count());
  v1::ServerInfo info;
  info.set_version(TRAINYARD_VERSION);
  info.mutable_start_time()->set_seconds(service_.start_time_us / 1'000'000);
  info.mutable_start_time()->set_nanos(
      static_cast<int32_t>(service_.start_time_us % 1'000'000 * 1000));
  info.set_jobs_queued(counts.queued);
  info.set_jobs_running(counts.starting + counts.running);
  info.set_draining(service_.draining);
  info.set_upload_bytes_max(service_.config.upload_bytes_max);
  info.set_message_bytes_max(kMessageBytesMax);
  for (const std::string& warning : service_.warnings) info.add_warnings(warning);
  if (const std::optional<std::string> low = service_.disk.warning()) info.add_warnings(*low);
  if (Status s = service_.store.health(); !s.ok()) info.add_warnings(s.error().message);
  return info;
}

Result<v1::ListDevicesResponse> SystemHandlers::list_devices(const v1::ListDevicesRequest&) const {
  const Devices devices = service_.inventory.read();
  ASSIGN_OR_RETURN(const std::vector<Job> jobs, service_.store.jobs().list_active());
  const std::vector<DeviceView> views = service_.dispatcher.devices();
  v1::ListDevicesResponse response;
  response.set_note(devices.note);
  for (const Device& device : devices.devices) {
    v1::Device& out = *response.add_devices();
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
    out.set_faults(device.faults_told);
    if (device.utilisation_percent) out.set_utilisation_percent(*device.utilisation_percent);
    if (device.temperature_celsius) out.set_temperature_celsius(*device.temperature_celsius);
    if (device.power_watts) out.set_power_watts(*device.power_watts);
    if (device.power_limit_watts) out.set_power_limit_watts(*device.power_limit_watts);
    const auto view = std::ranges::find(views, device.name, &DeviceView::device);
    if (view != views.end()) out.set_others_bytes(view->others_bytes);
    for (const Job& job : jobs) {
      const bool holds = std::ranges::find(job.devices, device.name) != job.devices.end();
      if (!holds) continue;
      out.add_jobs(job.name());
      v1::DeviceUse& use = *out.add_uses();
      use.set_job(job.name());
      if (device.kind == DeviceKind::kCpu) use.set_measured_bytes(measured_bytes(job));
      if (view == views.end()) continue;
      const auto placed = std::ranges::find(view->jobs, job.uid, &PlacedJob::uid);
      if (placed == view->jobs.end()) continue;
      use.set_planned_bytes(placed->bytes + device.overhead_bytes);
      if (device.kind == DeviceKind::kCpu) use.set_threads(placed->threads);
      if (placed->end.known()) *use.mutable_end() = to_proto(placed->end);
    }
  }
  return response;
}

int64_t SystemHandlers::measured_bytes(const Job& job) const {
  const Result<Attempt> attempt = service_.store.jobs().find_attempt(job.uid, job.attempt);
  if (!attempt.ok() || attempt->pid == 0) return 0;
  return resident_bytes(attempt->pid, attempt->process_start);
}

}  // namespace trainyard::server
