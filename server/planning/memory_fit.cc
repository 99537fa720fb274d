#include "server/planning/memory_fit.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "proto/convert/plan.h"
#include "proto/convert/run.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

/// Fluctuations below this are normal: neither reported nor held against a job.
constexpr int64_t kOthersIgnoredBytes = int64_t{64} << 20;

MemoryRoom room_on(const Device& device, const std::vector<Job>& active, int64_t cpu_limit_bytes) {
  MemoryRoom room{device.name, device.memory_bytes, 0, device.overhead_bytes};
  int64_t ours = 0;
  for (const Job& job : active) {
    const bool holds = std::ranges::find(job.devices, device.name) != job.devices.end();
    if (!is_active(job.state) || !holds) continue;
    const v1::MemoryPlan& memory = job.plan.memory();
    ours += (device.kind == DeviceKind::kCpu ? bytes_on_cpu(memory) : total_bytes(memory)) +
            device.overhead_bytes;
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

int64_t bytes_on(DeviceTraits traits, const v1::MemoryPlan& memory) {
  return traits.processor == Processor::kCpu ? bytes_on_cpu(memory) : total_bytes(memory);
}

bool may_use(DeviceWish wish, const Device& device) {
  if (device.kind == DeviceKind::kGpu) return wish != DeviceWish::kCpu && device.schedulable;
  return wish != DeviceWish::kGpu;
}

MemoryRoom largest_room(DeviceWish wish, int32_t gpus, const Devices& devices,
                        const std::vector<Job>& active, int64_t cpu_limit_bytes) {
  std::map<std::pair<DeviceKind, std::string>, std::vector<MemoryRoom>> groups;
  for (const Device& device : devices.devices) {
    if (!server::may_use(wish, device)) continue;
    groups[{device.kind, alike(device)}].push_back(room_on(device, active, cpu_limit_bytes));
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

std::string cost_text(const v1::FitChoice& choice, int64_t flops_per_step) {
  const auto percent_more = [](double now, double before) {
    return std::lround(100 * now / before) - 100;
  };
  if (choice.step_seconds() > 0 && choice.step_seconds_as_written() > 0) {
    const auto more = percent_more(choice.step_seconds(), choice.step_seconds_as_written());
    const std::string than = more > 0   ? std::to_string(more) + "% longer"
                             : more < 0 ? std::to_string(-more) + "% less"
                                        : "as long";
    return "; a step takes about " + than + " by forecast";
  }
  const auto more = percent_more(static_cast<double>(flops_per_step),
                                 static_cast<double>(choice.flops_as_written()));
  return more > 0 ? "; a step computes " + std::to_string(more) + "% more" : "";
}

std::string shortage_text(int64_t plan_bytes, const MemoryRoom& room) {
  const int64_t needed_bytes = plan_bytes + room.overhead_bytes;
  std::string text = "the job needs " + human_bytes(needed_bytes) + " of memory, ";
  if (room.overhead_bytes > 0) {
    text += "with " + human_bytes(room.overhead_bytes) +
            (room.device == "devices/cpu" ? " for its process, " : " for CUDA and its libraries, ");
  }
  text += human_bytes(needed_bytes - room.available_bytes()) + " more than " + room.device +
          " has for it (" + human_bytes(room.memory_bytes);
  if (room.others_bytes > 0) text += ", of which others use " + human_bytes(room.others_bytes);
  return text + ")";
}

}  // namespace trainyard::server
