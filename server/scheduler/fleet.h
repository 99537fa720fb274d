// server/scheduler/fleet.h: the index of devices and of the jobs on them, from which decide()
// works.
//
// The index is updated with each change, so that a scheduling pass over ten thousand devices costs
// only as much as has changed. In each group of equal devices, those that accept one more job are
// sorted by how well they suit one. Devices are equal if they have one model and the same projects
// may use them; a job of several devices may use several groups of one model.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "server/scheduler/project_devices.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {

class Fleet {
 public:
  using Index = int32_t;  // a device's position in the inventory

  using Ask = server::Ask;

  /// The part of a device that a job occupies, and until when.
  struct Stay {
    int64_t end_us = 0;  // result of upper_forecast()
    int64_t start_us = 0;
    int64_t bytes = 0;  // including the overhead of its process
    int32_t threads = 0;
    bool exclusive = false;
    const PlacedJob* job = nullptr;
  };
  /// The state of one device.
  struct Node {
    int32_t group = 0;
    bool usable = false;  // whether jobs may start on it
    bool soon = false;    // whether it is usable now or within seconds
    int32_t slots = 0;    // free slots; negative if the number of slots was reduced while jobs run
    int64_t room_bytes = 0;  // free for the plan of one more job
    int64_t idle_bytes = 0;  // room_bytes if no job were on the device
    int32_t cores = 0;       // cores of the CPU; 0 on a GPU, where cores are not counted
    int32_t cores_free = 0;
    bool taken = false;  // true: an exclusive job is on it
    // The lowest priority and the earliest start among its jobs that may be preempted.
    int32_t priority_min = 0;
    int64_t start_min_us = kUnlimited;  // kUnlimited: there is no such job
    std::vector<const PlacedJob*> jobs;
    std::vector<Stay> stays;  // one for each job, sorted by end
  };
  /// The sort key of devices that accept one more job: fewest jobs first, then the least room.
  struct Key {
    int32_t jobs = 0;
    int64_t room_bytes = 0;
    Index device = 0;
    auto operator<=>(const Key&) const = default;
  };
  /// Devices of one kind and model that the same projects may use.
  struct Group {
    DeviceKind kind = DeviceKind::kCpu;
    size_t model = 0;                             // index in models()
    std::set<std::string, std::less<>> excluded;  // the projects that may not use them
    std::vector<Index> members;
    bool has_bf16 = true;
    int32_t usable = 0, soon = 0;
    // Node::idle_bytes of the devices that are usable now or within seconds, in descending order.
    // The memory that other processes use on a device that is not usable yet is unknown, so its
    // value is kUnlimited.
    std::vector<int64_t> idle_bytes;
    /// Whether a job of the project that gets devices of `wanted` may run on these.
    bool suits(DeviceKind wanted, const DeviceRequest& asked, std::string_view project) const {
      return kind == wanted && (has_bf16 || !asked.bf16) && !excludes(project);
    }
    bool excludes(std::string_view project) const {
      return !excluded.empty() && excluded.contains(project);
    }
    /// Returns the number of devices that would have room for a plan of `bytes` without their jobs.
    int64_t could_fit(int64_t bytes) const {
      const auto has_room = [bytes](int64_t idle) { return idle >= bytes; };
      return std::ranges::partition_point(idle_bytes, has_room) - idle_bytes.begin();
    }
    std::set<Key> free;
  };
  /// The groups of one kind and model.
  struct Model {
    DeviceKind kind = DeviceKind::kCpu;
    std::vector<size_t> groups;
  };
  /// Kinds of device that a job may get.
  struct Kinds {
    bool cpu = false, gpu = false;
  };

  Fleet() = default;
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  /// Replaces the state of the devices. Jobs stay on their devices.
  void set_devices(Devices devices);
  /// Replaces the lists of devices that projects may use.
  void set_project_devices(ProjectDevices lists);
  /// Puts the job on its devices, or replaces its entry. Its end is bounded by its time limit.
  void place(PlacedJob job);
  /// Removes the job as if it had never been placed. This and leave() do nothing if the job is not
  /// placed.
  void remove(std::string_view uid);
  /// Removes the job and records that it left its devices at `now_us`.
  void leave(std::string_view uid, int64_t now_us);
  void clear_jobs();

  const PlacedJob* find(std::string_view uid) const;
  size_t placed_count() const { return placed_.size(); }
  /// Returns a placed job's devices, as far as they exist in the inventory.
  std::span<const Index> devices_of(const PlacedJob& job) const;

  /// Returns the jobs on the device of this name; empty if there is no such device.
  std::span<const PlacedJob* const> jobs_on(std::string_view device) const;

  const Devices& devices() const { return devices_; }
  const Device& device(Index i) const { return devices_.devices[static_cast<size_t>(i)]; }
  /// Returns the earliest end of the device's jobs by their upper forecasts; kUnlimited if none is
  /// known.
  int64_t next_end_us(Index i) const { return next_ends_us_[static_cast<size_t>(i)]; }
  /// Returns when leave() last removed a job from the device; 0: never.
  int64_t left_time_us(Index i) const { return left_times_us_[static_cast<size_t>(i)]; }
  const Node& node(Index i) const { return nodes_[static_cast<size_t>(i)]; }
  std::span<const Group> groups() const { return groups_; }
  std::span<const Model> models() const { return models_; }
  const ProjectDevices& project_devices() const { return project_devices_; }
  /// Returns whether jobs of the project may use the device.
  bool allows(Index i, std::string_view project) const {
    return !groups_[static_cast<size_t>(node(i).group)].excludes(project);
  }
  /// Returns whether there is a device of this kind that the project may use.
  bool allows_kind(DeviceKind kind, std::string_view project) const;

  // The numbers of the model's devices on which the job may run, usable now, and also within
  // seconds.
  int32_t usable(const Model& model, const DeviceRequest& asked, std::string_view project) const;
  int32_t soon(const Model& model, const DeviceRequest& asked, std::string_view project) const;
  /// Returns whether as many devices of this kind as the job asks for, of one model that suits it,
  /// are usable; will_have_kind() also counts devices that become usable within seconds.
  bool has_kind(DeviceKind kind, const DeviceRequest& asked, std::string_view project) const;
  bool will_have_kind(DeviceKind kind, const DeviceRequest& asked, std::string_view project) const;
  /// Returns the kinds with will_have_kind(). A job whose project may use GPUs but no CPU always
  /// has the kind GPU, so that it waits for one.
  Kinds kinds(const DeviceRequest& asked, std::string_view project) const;
  /// Returns whether `count` devices of these groups, or of this kind and one model, would each
  /// have room for a plan of `bytes` if they had no jobs. Memory used by other processes counts as
  /// occupied.
  bool could_fit_together(std::span<const size_t> groups, int32_t count, int64_t bytes) const;
  bool could_fit_together(DeviceKind kind, const DeviceRequest& asked, std::string_view project,
                          int64_t bytes) const;
  /// The same of the model's groups on which the job may run.
  bool could_fit_together(const Model& model, const DeviceRequest& asked, std::string_view project,
                          int64_t bytes) const;
  /// Returns the largest room in bytes among the devices of this kind that accept one more job;
  /// negative if none does.
  int64_t most_room(DeviceKind kind) const;
  /// Returns the bytes that one more job with this need takes on the device: a file that a job
  /// there has mapped is there already.
  static int64_t bytes_beside(const Ask& ask, std::span<const PlacedJob* const> jobs);
  /// Returns the bytes of the files that the jobs have mapped, each counted once.
  static int64_t mapped_bytes(std::span<const PlacedJob* const> jobs);
  /// Returns whether one more job with this need fits on the device now.
  bool fits(Index i, const Ask& ask) const;
  /// Returns whether a job with this need would fit in the device's memory if no other job were
  /// there. Memory used by other processes counts as occupied.
  bool could_fit(Index i, const Ask& ask) const;
  /// Returns when a job with this need will fit on the device according to the upper forecasts of
  /// the jobs there, if no other job comes: `now_us` or later, or kUnlimited if unknown.
  int64_t fit_time(Index i, const Ask& ask, int64_t now_us) const;
  /// Returns when a placed job is expected to end at the latest, by its upper forecast or time
  /// limit; kUnlimited if unknown. An overdue or stopping job gets a time soon after `now_us`.
  static int64_t upper_end(const PlacedJob& job, int64_t now_us);
  /// Returns the uncorrected upper forecast of the end, or the time limit, even if that time has
  /// passed; 0 if the job is stopping.
  static int64_t upper_forecast(const PlacedJob& job);

 private:
  struct Placed {
    PlacedJob job;
    std::vector<Index> at;
  };
  void rebuild();
  void note_idle_bytes();
  void attach(Placed& placed);
  void detach(const Placed& placed);
  /// Recomputes the entries of a device. Must be called after the device or its jobs have changed.
  void refresh(Index i);

  Devices devices_;
  std::vector<Node> nodes_;  // one for each of devices_
  // One value per device, in contiguous arrays because passes scan all of them.
  std::vector<int64_t> next_ends_us_, left_times_us_;
  std::vector<Key> keys_;  // each node's key in its group's `free`; jobs < 0: it has no entry there
  std::vector<Group> groups_;
  std::vector<Model> models_;
  ProjectDevices project_devices_;
  std::unordered_map<std::string_view, Index> by_name_;  // the keys refer to names in devices_
  // Keyed by uid; the key refers to the string in the value.
  std::unordered_map<std::string_view, std::unique_ptr<Placed>> placed_;
};

}  // namespace trainyard::server
