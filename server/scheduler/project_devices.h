// server/scheduler/project_devices.h: which devices and clusters the jobs of a project may use.
//
// An operator gives a project a list of names: devices/cpu, devices/gpu-0, clusters/slurm, or "gpu"
// for all GPUs of this server. The functions are pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/job.h"
#include "src/base/result.h"
#include "src/planning/devices.h"

namespace trainyard::server {

/// The lists by project. A project without a list may use every device and cluster.
using ProjectDevices = std::map<std::string, std::vector<std::string>, std::less<>>;

/// Stands for all GPUs of this server in a list.
inline constexpr std::string_view kAllGpus = "gpu";

/// Returns the project's list; null if it has none.
const std::vector<std::string>* find_list(const ProjectDevices& lists, std::string_view project);
bool may_use(const ProjectDevices& lists, std::string_view project, std::string_view device,
             DeviceKind kind);
bool may_use_cluster(const ProjectDevices& lists, std::string_view project,
                     std::string_view cluster);

/// Returns a list as text: "devices/gpu-0, devices/gpu-1 and all GPUs".
std::string devices_text(const std::vector<std::string>& list);
/// Returns the beginning of a sentence: "The project vision may use devices/gpu-0".
std::string list_text(std::string_view project, const std::vector<std::string>& list);

/// Checks a new list: each name is a device or a cluster of this server, or "gpu". NOT_FOUND /
/// DEVICE_NOT_FOUND, INVALID_ARGUMENT / FIELD_CONFLICT for a name that occurs twice.
Status check_list(const std::vector<std::string>& list, const std::vector<std::string>& known);

/// Refuses a job that the project's devices can never run: INVALID_ARGUMENT / RESOURCES_IMPOSSIBLE.
/// `devices` are those of this server.
Status check_project_devices(std::string_view project, const std::vector<std::string>& list,
                             const v1::Resources& asked, const Devices& devices);
/// Removes the devices that the project may not use.
Devices only_allowed(Devices devices, std::string_view project, const ProjectDevices& lists);

}  // namespace trainyard::server
