// FIFO, strict priority and EASY backfill; each job gets whole GPUs.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/bench/schedule_sim/policy.h"

namespace trainyard::sim {
namespace {

enum class Order : uint8_t { kArrival, kPriority };

class WholeGpus final : public SchedulingPolicy {
 public:
  WholeGpus(const World& world, std::string_view name, Order order, bool backfills)
      : name_(name), order_(order), backfills_(backfills) {
    groups_.resize(static_cast<size_t>(world.cluster().group_count));
    for (size_t i = 0; i < world.machines().size(); ++i) {
      const Machine& m = world.machines()[i];
      Group& group = groups_[static_cast<size_t>(m.group)];
      group.free.insert(static_cast<int>(i));
      group.memory_bytes = m.device.memory_bytes - m.device.overhead_bytes;
      group.speed = m.speed;
      ++group.count;
    }
    // Groups with the smallest memory first, so that large devices stay free for jobs that need
    // them.
    for (int g = 1; g < world.cluster().group_count; ++g) by_memory_.push_back(g);
    std::ranges::stable_sort(by_memory_, {}, [&](int g) { return at(g).memory_bytes; });
  }

  std::string_view name() const override { return name_; }

  void job_changed(const World& world, int id) override {
    const Phase phase = world.state(id).phase;
    Line& line = line_of(kind_of(world, id));
    line.erase(key(world, id));
    take_off(id);
    if (phase == Phase::kWaiting) {
      line.insert(key(world, id));
    } else if (!world.state(id).devices.empty()) {
      put_on(world, id);
    }
  }
  void device_changed(const World& /*world*/, int /*device*/) override {}

  Plan decide(const World& world) override {
    Plan plan;
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kGpu}) walk(world, kind, plan);
    cpu_taken_.clear();
    for (const Start& start : plan.starts) {
      for (const int d : start.devices) at_device(world, d).free.insert(d);
    }
    return plan;
  }

 private:
  static constexpr int kBackfillDepth = 1000;  // jobs considered after the first waiting one

  struct Group {
    std::set<int> free;
    std::set<std::pair<int64_t, int>> ends;  // the occupied devices: forecast end, device
    int64_t memory_bytes = 0;
    double speed = 1;
    int count = 0;
  };
  /// The time at which the first waiting job gets a group's devices, and how many devices remain
  /// then.
  struct Shadow {
    bool reserved = false;
    int64_t start_us = 0;
    int extra = 0;
  };
  using Key = std::pair<std::pair<int, int64_t>, int>;
  using Line = std::set<Key>;

  /// Goes through the jobs that wait for this kind of device.
  void walk(const World& world, DeviceKind kind, Plan& plan) {
    std::vector<Shadow> shadows(groups_.size());
    bool blocked = false;
    int looked = 0;
    const bool backfill = backfills_ && kind == DeviceKind::kGpu;
    for (const auto& [order, id] : line_of(kind)) {
      const int64_t retry_us = world.state(id).retry_us;
      if (retry_us > world.now_us()) {
        plan.wake_us = std::min(plan.wake_us.value_or(retry_us), retry_us);
        continue;
      }
      if (blocked && (!backfill || ++looked > kBackfillDepth || free_gpus() == 0)) return;
      std::vector<int> devices = find(world, id, kind, blocked ? &shadows : nullptr);
      if (devices.empty()) {
        if (!blocked && backfill) reserve(world, id, shadows);
        blocked = true;
        continue;
      }
      // The simulation reports the start later; until then the devices count as occupied.
      for (const int d : devices) at_device(world, d).free.erase(d);
      if (kind == DeviceKind::kCpu) cpu_taken_.push_back(id);
      plan.starts.push_back({id, std::move(devices)});
    }
  }

  Group& at(int group) { return groups_[static_cast<size_t>(group)]; }
  Group& at_device(const World& world, int device) { return at(world.machine(device).group); }
  Key key(const World& world, int id) const {
    const int before = order_ == Order::kPriority ? -world.job(id).priority : 0;
    return {{before, world.job(id).arrive_us}, id};
  }
  int free_gpus() const {
    int free = 0;
    for (size_t g = 1; g < groups_.size(); ++g) free += static_cast<int>(groups_[g].free.size());
    return free;
  }

  Line& line_of(DeviceKind kind) { return kind == DeviceKind::kCpu ? cpu_line_ : gpu_line_; }
  /// A job that accepts both kinds waits for a GPU.
  static DeviceKind kind_of(const World& world, int id) {
    if (world.cluster().gpu_count == 0) return DeviceKind::kCpu;
    return world.job(id).wish == DeviceWish::kCpu ? DeviceKind::kCpu : DeviceKind::kGpu;
  }

  void take_off(int id) {
    const auto placed = placed_.find(id);
    if (placed == placed_.end()) return;
    for (const auto& [device, end_us, group] : placed->second) {
      at(group).ends.erase({end_us, device});
      at(group).free.insert(device);
    }
    placed_.erase(placed);
  }
  void put_on(const World& world, int id) {
    if (world.machine(world.state(id).devices.front()).device.kind == DeviceKind::kCpu) return;
    const int64_t end_us = world.forecast_end_us(id);
    auto& placed = placed_[id];
    for (const int device : world.state(id).devices) {
      const int group = world.machine(device).group;
      at(group).free.erase(device);
      at(group).ends.emplace(end_us, device);
      placed.push_back({device, end_us, group});
    }
  }

  bool cpu_fits(const World& world, int id) const {
    int32_t cores = world.device(0).cores;
    int64_t bytes = world.device(0).planned_bytes;
    size_t jobs = world.device(0).jobs.size() + cpu_taken_.size();
    bool exclusive = world.job(id).exclusive && jobs > 0;
    for (const int other : cpu_taken_) {
      cores += world.job(other).cores;
      bytes += world.job(other).bytes;
      exclusive = exclusive || world.job(other).exclusive;
    }
    const Device& cpu = world.machine(0).device;
    return world.fits(id, 0) && !exclusive && static_cast<int>(jobs) < cpu.slots &&
           cores + world.job(id).cores <= cpu.cores &&
           bytes + world.job(id).bytes <= cpu.memory_bytes;
  }

  std::vector<int> find(const World& world, int id, DeviceKind kind, std::vector<Shadow>* shadows) {
    if (kind == DeviceKind::kCpu) {
      return cpu_fits(world, id) ? std::vector<int>{0} : std::vector<int>{};
    }
    const TraceJob& job = world.job(id);
    for (const int g : by_memory_) {
      Group& group = at(g);
      if (job.bytes > group.memory_bytes || std::ssize(group.free) < job.gpus) continue;
      Shadow* shadow = nullptr;
      if (shadows != nullptr && (*shadows)[static_cast<size_t>(g)].reserved) {
        shadow = &(*shadows)[static_cast<size_t>(g)];
        const int64_t end_us = world.now_us() + world.forecast_us(id, group.speed);
        if (end_us <= shadow->start_us) {
          shadow = nullptr;  // the job ends before the reserved start
        } else if (shadow->extra < job.gpus) {
          continue;
        }
      }
      std::vector<int> found;
      for (const int device : group.free) {
        if (world.fits(id, device)) found.push_back(device);
        if (std::ssize(found) == job.gpus) break;
      }
      if (std::ssize(found) < job.gpus) continue;
      if (shadow != nullptr) shadow->extra -= job.gpus;
      return found;
    }
    return {};
  }

  /// Reserves devices in the group that will have enough free devices first.
  void reserve(const World& world, int id, std::vector<Shadow>& shadows) {
    const TraceJob& job = world.job(id);
    int best = 0;
    Shadow first;
    for (const int g : by_memory_) {
      const Group& group = at(g);
      if (job.bytes > group.memory_bytes || group.count < job.gpus) continue;
      auto free = static_cast<int>(group.free.size());
      int64_t start_us = world.now_us();
      auto end = group.ends.begin();
      for (; free < job.gpus && end != group.ends.end(); ++end, ++free) {
        start_us = std::max(start_us, end->first);
      }
      while (end != group.ends.end() && end->first <= start_us) ++end, ++free;
      if (free < job.gpus || (best != 0 && first.start_us <= start_us)) continue;
      best = g;
      first = {true, start_us, free - job.gpus};
    }
    if (best != 0) shadows[static_cast<size_t>(best)] = first;
  }

  struct Taken {
    int device;
    int64_t end_us;
    int group;
  };
  const std::string name_;
  const Order order_;
  const bool backfills_;
  std::vector<Group> groups_;
  std::vector<int> by_memory_;
  Line cpu_line_, gpu_line_;
  std::map<int, std::vector<Taken>> placed_;
  std::vector<int> cpu_taken_;  // by the current decision
};

}  // namespace

std::unique_ptr<SchedulingPolicy> make_fifo(const World& world) {
  return std::make_unique<WholeGpus>(world, "FIFO", Order::kArrival, false);
}
std::unique_ptr<SchedulingPolicy> make_strict_priority(const World& world) {
  return std::make_unique<WholeGpus>(world, "strict priority", Order::kPriority, false);
}
std::unique_ptr<SchedulingPolicy> make_easy_backfill(const World& world) {
  return std::make_unique<WholeGpus>(world, "EASY backfill", Order::kPriority, true);
}

}  // namespace trainyard::sim
