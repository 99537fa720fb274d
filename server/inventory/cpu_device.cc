#include "server/inventory/cpu_device.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "src/base/files.h"

namespace trainyard::server {
namespace {

constexpr int64_t kProcFileBytesMax = 16 << 20;
/// Memory of a training worker in addition to its plan: its program, libraries and stacks.
/// tests/bench/memory_bench.py measures it.
constexpr int64_t kCpuProcessBytes = int64_t{48} << 20;

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

std::optional<int64_t> to_integer(std::string_view text) {
  text = trim(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// Returns the value after "key :" in the text of a /proc file; empty if there is none.
std::string_view find_value(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos && trim(line.substr(0, colon)) == key)
      return trim(line.substr(colon + 1));
    at = end + 1;
  }
  return {};
}

int32_t count_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) return CPU_COUNT(&mask);
  return static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
}

std::optional<int64_t> read_integer(const char* path) {
  const Result<std::string> text = read_file(path, 4096);
  return text.ok() ? to_integer(*text) : std::nullopt;
}

// Returns the memory of the control group that the kernel can reclaim: the page cache of files.
int64_t reclaimable_bytes() {
  int64_t bytes = 0;
  for (const auto& [path, keys] :
       {std::pair("/sys/fs/cgroup/memory.stat", std::array{"inactive_file", "active_file"}),
        std::pair("/sys/fs/cgroup/memory/memory.stat",
                  std::array{"total_inactive_file", "total_active_file"})}) {
    const Result<std::string> text = read_file(path, kProcFileBytesMax);
    if (!text.ok()) continue;
    std::istringstream lines(*text);
    std::string key;
    for (int64_t value = 0; lines >> key >> value;) {
      if (key == keys[0] || key == keys[1]) bytes += value;
    }
    return bytes;
  }
  return bytes;
}

// In a container meminfo reports the host's memory, but the container's own limit applies. Tries
// control groups of version 2, then version 1.
void apply_cgroup_limit(Device& device) {
  std::optional<int64_t> limit = read_integer("/sys/fs/cgroup/memory.max");
  std::optional<int64_t> used = read_integer("/sys/fs/cgroup/memory.current");
  if (!limit) {
    limit = read_integer("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    used = read_integer("/sys/fs/cgroup/memory/memory.usage_in_bytes");
  }
  if (!limit || *limit <= 0 || *limit >= device.memory_bytes) return;
  device.memory_bytes = *limit;
  if (used) {
    device.memory_used_bytes = std::clamp<int64_t>(*used - reclaimable_bytes(), 0, *limit);
  }
}

}  // namespace

Device read_cpu_device(const InventoryOptions& options) {
  Device device;
  device.name = "devices/cpu";
  device.kind = DeviceKind::kCpu;
  device.slots = options.cpu_slots;
  device.cores = count_cores();
  device.overhead_bytes = kCpuProcessBytes;
  device.model = "CPU";
  if (const Result<std::string> info = read_file(options.cpuinfo, kProcFileBytesMax); info.ok()) {
    const std::string_view model = find_value(*info, "model name");
    if (!model.empty()) device.model = model;
  }
  const Result<std::string> memory = read_file(options.meminfo, kProcFileBytesMax);
  const auto kib = [&](std::string_view key) {
    return memory.ok() ? to_integer(find_value(*memory, key)) : std::nullopt;
  };
  const std::optional<int64_t> total = kib("MemTotal");
  const std::optional<int64_t> available = kib("MemAvailable");
  if (!total || !available) {
    device.health = DeviceHealth::kUnknown;
    device.reason = "The memory of this machine cannot be read.";
    return device;
  }
  device.memory_bytes = *total * 1024;
  device.memory_used_bytes = std::max<int64_t>(0, *total - *available) * 1024;
  if (options.meminfo == "/proc/meminfo") apply_cgroup_limit(device);
  return device;
}

}  // namespace trainyard::server
