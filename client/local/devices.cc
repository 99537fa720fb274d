#include "client/local/devices.h"

#include <algorithm>

#include "client/cli/options.h"
#include "src/base/cores.h"
#include "src/base/text.h"
#include "src/runtime/open_backend.h"
#include "src/runtime/visible_gpus.h"

namespace trainyard::cli {
namespace {

constexpr int kThreadsMax = 256;

}  // namespace

Result<std::string> pick_device(const std::string& wish) {
  if (wish == "cpu") return std::string("devices/cpu");
  if (wish == "gpu") return nth_visible_gpu(0);
  if (parse_gpu_name("devices/" + wish)) return "devices/" + wish;
  return usage_error("--device: " + quoted_value(wish) + ", expected cpu, gpu or gpu-N");
}

Result<std::vector<std::string>> pick_devices(const v1::Resources& resources,
                                              const std::string& flag) {
  std::vector<std::string> devices;
  if (flag.empty()) {
    if (!resources.cluster().empty()) {
      return field_error("FIELD_UNUSED", "resources.cluster",
                         quoted_value(resources.cluster()) +
                             " is a cluster of a server: submit or plan the job there (plan "
                             "--upload); for this machine, remove it or use --device cpu");
    }
    const bool is_gpu = resources.device() == v1::Resources::GPU;
    const int count = std::max(1, resources.gpus());
    if (count > 1 && !is_gpu) {
      return field_error("FIELD_UNUSED", "resources.gpus",
                         std::to_string(count) + " needs resources.device: gpu");
    }
    for (int i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(std::string device,
                       is_gpu ? nth_visible_gpu(i) : Result<std::string>("devices/cpu"));
      devices.push_back(std::move(device));
    }
    if (Status s = check_devices(devices, "resources.gpus"); !s.ok()) return std::move(s).error();
    return devices;
  }
  for (size_t at = 0; at <= flag.size();) {
    const size_t end = std::min(flag.find(',', at), flag.size());
    ASSIGN_OR_RETURN(std::string device, pick_device(flag.substr(at, end - at)));
    devices.push_back(std::move(device));
    at = end + 1;
  }
  if (Status s = check_devices(devices, "--device"); !s.ok()) return std::move(s).error();
  return devices;
}

Result<int> pick_threads(const v1::Resources& resources, int64_t flag) {
  if (flag < 0 || flag > kThreadsMax) {
    return usage_error("--threads: expected 1..256");
  }
  if (flag > 0) return static_cast<int>(flag);
  return resources.threads() > 0 ? resources.threads() : usable_cores();
}

}  // namespace trainyard::cli
