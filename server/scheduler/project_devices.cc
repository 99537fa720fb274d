#include "server/scheduler/project_devices.h"

#include <algorithm>
#include <span>

#include "proto/convert/resources.h"
#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr size_t kListedMax = 8;  // the largest number of devices that a sentence lists in full

bool has(const std::vector<std::string>& list, std::string_view name) {
  return std::ranges::find(list, name) != list.end();
}

Error impossible(const char* field, const std::string& value, std::string_view project,
                 const std::vector<std::string>& list, const std::string& expected) {
  return field_error("RESOURCES_IMPOSSIBLE", std::string("spec.resources.") + field,
                     value + " is not available to the project " + std::string(project) +
                         ", which may use only " + devices_text(list) + "; " + expected +
                         ", or ask an operator to change the project's devices");
}

}  // namespace

const std::vector<std::string>* find_list(const ProjectDevices& lists, std::string_view project) {
  const auto found = lists.find(project);
  return found == lists.end() || found->second.empty() ? nullptr : &found->second;
}

bool may_use(const ProjectDevices& lists, std::string_view project, std::string_view device,
             DeviceKind kind) {
  const std::vector<std::string>* const list = find_list(lists, project);
  return list == nullptr || has(*list, device) ||
         (kind == DeviceKind::kGpu && has(*list, kAllGpus));
}

bool may_use_cluster(const ProjectDevices& lists, std::string_view project,
                     std::string_view cluster) {
  const std::vector<std::string>* const list = find_list(lists, project);
  return list == nullptr || has(*list, std::string(kClusterPrefix) + std::string(cluster));
}

std::string devices_text(const std::vector<std::string>& list) {
  std::vector<std::string> names;
  for (const std::string& name : list) names.push_back(name == kAllGpus ? "all GPUs" : name);
  return names.size() <= kListedMax ? joined(names, " and ") : first_names(names);
}

std::string list_text(std::string_view project, const std::vector<std::string>& list) {
  return "The project " + std::string(project) + " may use " + devices_text(list);
}

Status check_list(const std::vector<std::string>& list, const std::vector<std::string>& known) {
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string field = "devices[" + std::to_string(i) + "]";
    const std::span before = std::span(list).first(i);
    if (std::ranges::find(before, list[i]) != before.end()) {
      return field_error("FIELD_CONFLICT", field,
                         quoted_value(list[i]) + " is given twice, expected it once");
    }
    if (list[i] == kAllGpus || has(known, list[i])) continue;
    Error e = field_error("DEVICE_NOT_FOUND", field,
                          "there is no device " + quoted_value(list[i]) +
                              ", expected gpu for all GPUs, or one of " + first_names(known));
    e.code = ErrorCode::kNotFound;
    return e;
  }
  return {};
}

Status check_project_devices(std::string_view project, const std::vector<std::string>& list,
                             const v1::Resources& asked, const Devices& devices) {
  const ProjectDevices lists{{std::string(project), list}};
  if (!asked.cluster().empty()) {
    if (may_use_cluster(lists, project, asked.cluster())) return {};
    return impossible("cluster", quoted_value(asked.cluster()), project, list,
                      "leave it out or name another cluster");
  }
  const auto count = [&](DeviceKind kind) {
    return std::ranges::count_if(devices.devices, [&](const Device& d) {
      return d.kind == kind && may_use(lists, project, d.name, d.kind);
    });
  };
  const auto cpus = count(DeviceKind::kCpu), gpus = count(DeviceKind::kGpu);
  const DeviceWish wish = wish_of(asked);
  if (wish == DeviceWish::kCpu && cpus == 0) {
    return impossible("device", "cpu", project, list,
                      gpus > 0 ? "expected auto or gpu" : "name a cluster");
  }
  if (wish == DeviceWish::kGpu && gpus == 0) {
    return impossible("device", "gpu", project, list,
                      cpus > 0 ? "expected auto or cpu" : "name a cluster");
  }
  if (wish == DeviceWish::kGpu && gpus < gpus_of(asked)) {
    return impossible("gpus", std::to_string(gpus_of(asked)), project, list,
                      "expected 1.." + std::to_string(gpus));
  }
  if (cpus == 0 && gpus == 0) {
    return impossible("device", "a device of this server", project, list, "name a cluster");
  }
  return {};
}

Devices only_allowed(Devices devices, std::string_view project, const ProjectDevices& lists) {
  if (find_list(lists, project) == nullptr) return devices;
  for (std::vector<Device>* all : {&devices.devices, &devices.too_old}) {
    std::erase_if(*all, [&](const Device& d) { return !may_use(lists, project, d.name, d.kind); });
  }
  devices.owner = "the project " + std::string(project);
  return devices;
}

}  // namespace trainyard::server
