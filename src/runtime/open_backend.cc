#include "src/runtime/open_backend.h"

#include <algorithm>
#include <charconv>

#include "src/base/cores.h"
#include "src/base/text.h"
#include "src/runtime/cuda_module.h"

namespace trainyard {
namespace {

constexpr std::string_view kGpu = "devices/gpu-";

}  // namespace

Result<std::unique_ptr<Backend>> open_backend(std::string_view device, int threads) {
  if (device == "devices/cpu") return make_cpu_backend(threads > 0 ? threads : usable_cores());
  if (device.starts_with(kGpu)) {
    const std::string_view digits = device.substr(kGpu.size());
    int index = -1;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (ec == std::errc() && end == digits.data() + digits.size() && index >= 0) {
      return open_cuda_backend(cuda_module_path(), index);
    }
  }
  return make_error(
      ErrorCode::kNotFound, "DEVICE_NOT_FOUND",
      "device " + quoted_value(device) + " is not known, expected devices/cpu or devices/gpu-N");
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
    if (!devices[i].starts_with(kGpu)) {
      return refuse(quoted_value(devices[i]) + " cannot share a job with other devices");
    }
    if (std::ranges::count(devices.first(i), devices[i]) > 0) {
      return refuse(quoted_value(devices[i]) + " is named twice");
    }
  }
  return {};
}

Result<std::vector<RankDevice>> open_devices(std::span<const std::string> devices, int threads,
                                             const std::shared_ptr<Algorithms>& algorithms) {
  if (Status s = check_devices(devices, "devices"); !s.ok()) return std::move(s).error();
  std::vector<RankDevice> ranks;
  std::vector<Backend*> backends;
  for (const std::string& device : devices) {
    ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, open_backend(device, threads));
    if (algorithms != nullptr) backend->use_algorithms(algorithms);
    ranks.push_back({device, std::move(backend)});
    backends.push_back(ranks.back().backend.get());
  }
  if (ranks.size() > 1) {
    if (Status s = backends.front()->connect(backends); !s.ok()) return std::move(s).error();
  }
  return ranks;
}

}  // namespace trainyard
