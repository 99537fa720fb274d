#include "src/runtime/open_backend.h"

#include <algorithm>

#include "src/base/cores.h"
#include "src/base/text.h"
#include "src/runtime/cuda_module.h"
#include "src/runtime/join.h"
#include "src/runtime/visible_gpus.h"

namespace trainyard {
namespace {

/// `ordinal` is the GPU's number among the GPUs visible to CUDA.
Result<std::unique_ptr<Backend>> open_visible(const std::string& device, int ordinal, int threads) {
  if (device == "devices/cpu") return make_cpu_backend(threads > 0 ? threads : usable_cores());
  if (parse_gpu_name(device)) return open_cuda_backend(cuda_module_path(), ordinal);
  return make_error(
      ErrorCode::kNotFound, "DEVICE_NOT_FOUND",
      "device " + quoted_value(device) + " is not known, expected devices/cpu or devices/gpu-N");
}

/// Like open_devices(), without connecting the devices.
Result<std::vector<RankDevice>> open_each(std::span<const std::string> devices, int threads,
                                          const std::shared_ptr<Algorithms>& algorithms) {
  if (Status s = check_devices(devices, "devices"); !s.ok()) return std::move(s).error();
  if (Status s = set_visible_gpus(devices); !s.ok()) return std::move(s).error();
  std::vector<RankDevice> ranks;
  for (size_t i = 0; i < devices.size(); ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend,
                     open_visible(devices[i], static_cast<int>(i), threads));
    if (algorithms != nullptr) backend->use_algorithms(algorithms);
    ranks.push_back({devices[i], std::move(backend)});
  }
  return ranks;
}

}  // namespace

Result<std::unique_ptr<Backend>> open_backend(std::string_view device, int threads) {
  const std::string name(device);
  if (Status s = set_visible_gpus({&name, 1}); !s.ok()) return std::move(s).error();
  return open_visible(name, 0, threads);
}

Status check_devices(std::span<const std::string> devices, const std::string& field) {
  const auto refuse = [&](const std::string& what) {
    return field_error(
        "DEVICES_INVALID", field,
        what + ", expected one device, or up to " + std::to_string(kRanksMax) + " different GPUs");
  };
  if (devices.empty()) return refuse("no device is given");
  if (devices.size() == 1) return {};
  if (std::ssize(devices) > kRanksMax) {
    return refuse(std::to_string(devices.size()) + " devices are given");
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::optional<GpuName> gpu = parse_gpu_name(devices[i]);
    if (!gpu || gpu->instance) {  // CUDA allows only one instance per process
      return refuse(quoted_value(devices[i]) + " cannot share a job with other devices");
    }
    if (std::ranges::count(devices.first(i), devices[i]) > 0) {
      return refuse(quoted_value(devices[i]) + " is named twice");
    }
  }
  return {};
}

Result<std::vector<RankDevice>> open_devices(std::span<const std::string> devices, int threads,
                                             const std::shared_ptr<Algorithms>& algorithms,
                                             const std::shared_ptr<Peers>& peers) {
  if (peers != nullptr) {
    return join_devices(peers, [&] { return open_each(devices, threads, algorithms); });
  }
  ASSIGN_OR_RETURN(std::vector<RankDevice> ranks, open_each(devices, threads, algorithms));
  if (ranks.size() == 1) return ranks;
  std::vector<Backend*> backends;
  for (const RankDevice& rank : ranks) backends.push_back(rank.backend.get());
  if (Status s = backends.front()->connect(backends); !s.ok()) return std::move(s).error();
  return ranks;
}

}  // namespace trainyard
