#include "server/service/system_handlers.h"

#include <algorithm>

#include "server/service/listener.h"

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

Result<v1::ListDevicesResponse> SystemHandlers::list_devices(
    const v1::ListDevicesRequest& request) const {
  const Devices devices = service_.inventory.read();
  ASSIGN_OR_RETURN(const std::vector<Job> jobs, service_.store.jobs().list_active());
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
    for (const Job& job : jobs) {
      const bool holds = std::ranges::find(job.devices, device.name) != job.devices.end();
      if (holds) out.add_jobs(job.name());
    }
    if (request.forecasts()) *out.mutable_forecasts() = service_.forecaster.describe(device);
  }
  return response;
}

}  // namespace trainyard::server
