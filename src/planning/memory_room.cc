#include "src/planning/memory_room.h"

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "src/base/text.h"
#include "src/planning/sharding_plans.h"

namespace trainyard {
namespace {

/// Less memory than this in use by others is normal fluctuation. It is ignored.
constexpr int64_t kOthersIgnoredBytes = int64_t{64} << 20;

MemoryRoom room_on(const Device& device, std::span<const JobMemory> job_memory,
                   int64_t cpu_limit_bytes) {
  MemoryRoom room{device.name, device.memory_bytes, 0, device.overhead_bytes};
  int64_t ours = 0;
  for (const JobMemory& memory : job_memory) {
    if (memory.device == device.name) ours += memory.bytes + device.overhead_bytes;
  }
  const int64_t others = device.memory_used_bytes - ours;
  if (others > kOthersIgnoredBytes) room.others_bytes = std::min(others, room.memory_bytes);
  if (device.kind == DeviceKind::kCpu && cpu_limit_bytes > 0 &&
      cpu_limit_bytes < room.available_bytes()) {
    room = {device.name, cpu_limit_bytes, 0, 0};
  }
  return room;
}

}  // namespace

int64_t bytes_on(const DeviceTraits& traits, const RunPlan& plan) {
  return device_bytes(traits, plan) +
         (traits.processor == Processor::kCpu ? 0 : plan.dataset_bytes);
}

bool may_use(DeviceWish wish, const Device& device) {
  if (device.kind == DeviceKind::kGpu) return wish != DeviceWish::kCpu && device.schedulable;
  return wish != DeviceWish::kGpu;
}

MemoryRoom largest_room(DeviceWish wish, int32_t gpus, const Devices& devices,
                        std::span<const JobMemory> job_memory, int64_t cpu_limit_bytes) {
  std::map<std::pair<DeviceKind, std::string>, std::vector<MemoryRoom>> groups;
  for (const Device& device : devices.devices) {
    if (!may_use(wish, device)) continue;
    groups[{device.kind, alike(device)}].push_back(room_on(device, job_memory, cpu_limit_bytes));
  }
  MemoryRoom largest;
  for (auto& [group, rooms] : groups) {
    if (std::ssize(rooms) < gpus) continue;
    std::ranges::stable_sort(rooms, std::greater(), &MemoryRoom::plan_bytes_max);
    const MemoryRoom& last = rooms[static_cast<size_t>(gpus) - 1];
    if (largest.device.empty() || last.plan_bytes_max() > largest.plan_bytes_max()) {
      largest = last;
    }
  }
  return largest;
}

std::string shortage_text(int64_t plan_bytes, const MemoryRoom& room) {
  const int64_t needed_bytes = plan_bytes + room.overhead_bytes;
  std::string text = "the job needs " + human_bytes(needed_bytes) + " of memory, ";
  if (room.overhead_bytes > 0) {
    text += "with " + human_bytes(room.overhead_bytes) +
            (room.device == kCpuDevice ? " for its process, " : " for CUDA and its libraries, ");
  }
  text += human_bytes(needed_bytes - room.available_bytes()) + " more than " + room.device +
          " has for it (" + human_bytes(room.memory_bytes);
  if (room.others_bytes > 0)
    text += ", of which other processes use " + human_bytes(room.others_bytes);
  return text + ")";
}

}  // namespace trainyard
