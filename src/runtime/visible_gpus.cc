#include "src/runtime/visible_gpus.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace trainyard {
namespace {

constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";

bool drop_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<int> take_index(std::string_view& text) {
  int value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::vector<std::string> entries_of(std::string_view list) {
  std::vector<std::string> entries;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    entries.emplace_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return entries;
}

bool means(std::string_view entry, const NvmlDevice& gpu) {
  if (entry.starts_with("GPU-")) return gpu.gpu_uuid.starts_with(entry);
  if (entry.starts_with("MIG-")) return gpu.uuid.starts_with(entry);
  return take_index(entry) == gpu.index && entry.empty();
}

Error device_not_found(const std::string& device, const std::string& why) {
  return make_error(ErrorCode::kNotFound, "DEVICE_NOT_FOUND", device + " is not available: " + why);
}

/// Returns the entry for CUDA_VISIBLE_DEVICES if the GPU's UUID cannot be read.
Result<std::string> entry_without_nvml(const std::string& device, const GpuName& name,
                                       const std::optional<std::string>& setting) {
  if (name.instance) {
    return device_not_found(device, std::string("instances are found through NVML, and ") +
                                        kNvmlLibrary + " does not answer");
  }
  std::string number = std::to_string(name.index);
  if (setting && std::ranges::count(entries_of(*setting), number) == 0) {
    return device_not_found(device, std::string(kVariable) + "=" + *setting + " does not name it");
  }
  return number;
}

Result<std::string> uuid_of(const std::string& device, const std::vector<NvmlDevice>& all,
                            const std::optional<std::string>& setting) {
  const auto is_it = [&](const NvmlDevice& gpu) { return "devices/" + gpu.name == device; };
  const std::vector<NvmlDevice> visible = visible_gpus(all, setting);
  const auto found = std::ranges::find_if(visible, is_it);
  if (found != visible.end()) {
    if (!found->error.empty()) return device_not_found(device, found->error);
    return found->uuid;
  }
  if (std::ranges::any_of(all, is_it)) {
    return device_not_found(device,
                            std::string(kVariable) + "=" + setting.value_or("") + " hides it");
  }
  std::string names;
  for (const NvmlDevice& gpu : visible) names += (names.empty() ? "" : ", ") + gpu.name;
  return device_not_found(device,
                          names.empty() ? "the NVIDIA driver shows no GPU" : "there is " + names);
}

}  // namespace

std::optional<GpuName> parse_gpu_name(std::string_view device) {
  if (!drop_prefix(device, "devices/gpu-")) return std::nullopt;
  const std::optional<int> index = take_index(device);
  if (!index) return std::nullopt;
  GpuName name{*index, std::nullopt};
  if (drop_prefix(device, "-mig-")) {
    name.instance = take_index(device);
    if (!name.instance) return std::nullopt;
  }
  if (!device.empty()) return std::nullopt;
  return name;
}

std::vector<NvmlDevice> visible_gpus(std::vector<NvmlDevice> all,
                                     const std::optional<std::string>& setting) {
  if (!setting) return all;
  std::vector<std::string> valid;
  for (std::string& entry : entries_of(*setting)) {
    const auto names = [&](const NvmlDevice& gpu) { return means(entry, gpu); };
    if (!std::ranges::any_of(all, names))
      break;  // CUDA ignores the entries after an invalid one too
    valid.push_back(std::move(entry));
  }
  std::erase_if(all, [&](const NvmlDevice& gpu) {
    return std::ranges::none_of(valid, [&](const std::string& entry) { return means(entry, gpu); });
  });
  return all;
}

std::optional<std::string> visible_gpus_setting() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return std::nullopt;
  return text;
}

Result<std::string> nth_visible_gpu(int n, const std::string& nvml_library) {
  const std::optional<std::string> setting = visible_gpus_setting();
  std::vector<std::string> names;
  if (const auto nvml = Nvml::load(nvml_library); nvml.ok()) {
    ASSIGN_OR_RETURN(std::vector<NvmlDevice> all, (*nvml)->read_devices());
    for (const NvmlDevice& gpu : visible_gpus(std::move(all), setting)) names.push_back(gpu.name);
  } else if (setting) {
    for (const std::string& entry : entries_of(*setting)) names.push_back("gpu-" + entry);
  } else {
    return "devices/gpu-" + std::to_string(n);
  }
  if (n < std::ssize(names)) return "devices/" + names[static_cast<size_t>(n)];
  return make_error(
      ErrorCode::kNotFound, "DEVICE_NOT_FOUND",
      std::to_string(n + 1) + " GPUs are not available: CUDA sees " + std::to_string(names.size()));
}

Status set_visible_gpus(std::span<const std::string> devices, const std::string& nvml_library) {
  const std::optional<std::string> setting = visible_gpus_setting();
  std::optional<std::vector<NvmlDevice>> all;
  std::string list;
  for (const std::string& device : devices) {
    const std::optional<GpuName> name = parse_gpu_name(device);
    if (!name) continue;
    if (list.empty()) {
      if (const auto nvml = Nvml::load(nvml_library); nvml.ok()) {
        ASSIGN_OR_RETURN(all, (*nvml)->read_devices());
      }
    }
    ASSIGN_OR_RETURN(const std::string entry, all ? uuid_of(device, *all, setting)
                                                  : entry_without_nvml(device, *name, setting));
    list += (list.empty() ? "" : ",") + entry;
  }
  if (!list.empty() && list != setting) ::setenv(kVariable, list.c_str(), /*overwrite=*/1);
  return {};
}

}  // namespace trainyard
