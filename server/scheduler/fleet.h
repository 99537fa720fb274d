// server/scheduler/fleet.h: the devices and the jobs on them, as decide() goes by them.
//
// An index that is kept up to date change by change, so that a look at ten thousand devices costs
// what has changed on them: those of each kind that take one more job are in order of how well they
// suit one.
#pragma once

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

#include "server/scheduler/scheduler.h"

namespace trainyard::server {

class Fleet {
 public:
  using Index = int32_t;  // of a device, in the order of the inventory

  using Ask = server::Ask;

  /// What a job holds of a device, and until when.
  struct Stay {
    int64_t end_us = 0;  // upper_forecast()
    int64_t start_us = 0;
    int64_t bytes = 0;  // with the overhead of its process
    int32_t threads = 0;
    bool exclusive = false;
  };
  /// One device.
  struct Node {
    int32_t group = 0;
    bool usable = false;     // jobs may start on it
    bool soon = false;       // in some seconds
    int32_t slots = 0;       // that no job holds; below 0 if they were cut while jobs run
    int64_t room_bytes = 0;  // for the plan of one more job
    int64_t idle_bytes = 0;  // the same if no job were on it
    int32_t cores = 0;       // of the CPU; 0: they are not counted
    int32_t cores_free = 0;
    bool taken = false;  // by an exclusive job
    // Of its jobs that could be stopped for another: the lowest priority, and the first start.
    int32_t priority_min = 0;
    int64_t start_min_us = kUnlimited;  // none
    std::vector<const PlacedJob*> jobs;
    std::vector<Stay> stays;  // of the jobs, those that end first in front
  };
  /// Devices that take one more job: fewest jobs first, then the least room.
  struct Key {
    int32_t jobs = 0;
    int64_t room_bytes = 0;
    Index device = 0;
    auto operator<=>(const Key&) const = default;
  };
  /// Devices of one kind and model.
  struct Group {
    DeviceKind kind = DeviceKind::kCpu;
    std::string model;  // alike()
    std::vector<Index> members;
    int32_t usable = 0, soon = 0;
    // Node::idle_bytes of those that are usable, or will be in seconds, the most in front. What
    // others leave of a device is not known before it is usable: kUnlimited.
    std::vector<int64_t> idle_bytes;
    bool could_fit_together(int32_t count, int64_t bytes) const {
      return std::cmp_less_equal(count, idle_bytes.size()) &&
             idle_bytes[static_cast<size_t>(count) - 1] >= bytes;
    }
    std::set<Key> free;
  };

  Fleet() = default;
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  /// The devices as they are now: what has changed is taken over. Jobs stay on theirs.
  void set_devices(Devices devices);
  /// Puts the job on its devices, or replaces what was known of it. Its time limit bounds its end.
  void place(PlacedJob job);
  /// As if it had never been placed. Nothing happens if it is not; here and below.
  void remove(std::string_view uid);
  /// It has left its devices, which are free from `now_us` on.
  void leave(std::string_view uid, int64_t now_us);
  void clear_jobs();

  const PlacedJob* find(std::string_view uid) const;
  size_t placed_count() const { return placed_.size(); }
  /// Of a placed job: those of its devices that are there.
  std::span<const Index> devices_of(const PlacedJob& job) const;

  /// On the device of this name; none if there is no such device.
  std::span<const PlacedJob* const> jobs_on(std::string_view device) const;

  const Devices& devices() const { return devices_; }
  const Device& device(Index i) const { return devices_.devices[static_cast<size_t>(i)]; }
  /// The first upper end of the device's jobs; kUnlimited: none is known.
  int64_t next_end_us(Index i) const { return next_ends_us_[static_cast<size_t>(i)]; }
  /// When a job last left the device, as leave() was told; 0: none has.
  int64_t left_time_us(Index i) const { return left_times_us_[static_cast<size_t>(i)]; }
  const Node& node(Index i) const { return nodes_[static_cast<size_t>(i)]; }
  std::span<const Group> groups() const { return groups_; }

  /// Whether that many devices of this kind and of one model are usable, or will be in seconds.
  bool has_kind(DeviceKind kind, int32_t count) const;
  bool will_have_kind(DeviceKind kind, int32_t count) const;
  /// Whether so many devices alike could each have room for a plan of so many bytes if they had no
  /// other job, as other processes leave them.
  bool could_fit_together(DeviceKind kind, int32_t count, int64_t bytes) const;
  /// The most that a device of this kind that takes one more job has room for; below 0: none does.
  int64_t most_room(DeviceKind kind) const;
  /// Whether one more job fits now.
  bool fits(Index i, const Ask& ask) const;
  /// The most that it could ever have room for, as other processes leave it, has the ask.
  bool could_fit(Index i, const Ask& ask) const;
  /// When it fits by the upper ends of the jobs there, if none comes: `now_us` or later, kUnlimited
  /// if that is unknown.
  int64_t fit_time(Index i, const Ask& ask, int64_t now_us) const;
  /// When a placed job ends by its upper forecast; kUnlimited if that is unknown. One that is
  /// overdue is expected soon.
  static int64_t upper_end(const PlacedJob& job, int64_t now_us);
  /// The same as it was forecast, or as its time limit says, though that may be over; 0 if it is
  /// leaving.
  static int64_t upper_forecast(const PlacedJob& job);

 private:
  struct Placed {
    PlacedJob job;
    std::vector<Index> at;
  };
  void rebuild();
  void attach(Placed& placed);
  void detach(const Placed& placed);
  /// After the device or its jobs have changed.
  void refresh(Index i);

  Devices devices_;
  std::vector<Node> nodes_;  // of devices_
  // Of each device, side by side: all are looked through.
  std::vector<int64_t> next_ends_us_, left_times_us_;
  std::vector<Key> keys_;  // of each node in its group's `free`; jobs < 0: it is not there
  std::vector<Group> groups_;
  std::unordered_map<std::string_view, Index> by_name_;                   // names in devices_
  std::unordered_map<std::string_view, std::unique_ptr<Placed>> placed_;  // by uid, which it owns
};

}  // namespace trainyard::server
