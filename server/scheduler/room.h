// server/scheduler/room.h: finds room for jobs during one scheduling pass, reserves devices for
// jobs that find none, and chooses jobs to preempt for them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/scheduler/fleet.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {

/// A trial placement on a fleet. The destructor removes the jobs that were placed.
class Room {
 public:
  /// Devices for a job, or the reservation that blocks it.
  struct Found {
    std::vector<Fleet::Index> devices;  // empty: there is no room
    int32_t reservation = -1;  // index of the reservation without which the job would fit; -1: none
  };

  Room(Fleet& fleet, const Policy& policy, int64_t now_us);
  ~Room();
  /// Restores the fleet to its state before the pass. Call it when everything is decided: the
  /// destructor restores the fleet, too, but cannot report a failed check.
  void give_back();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  const Fleet& fleet() const { return fleet_; }
  static Fleet::Ask ask_of(const WaitingJob& job, DeviceKind kind);
  static int32_t count_of(const WaitingJob& job, DeviceKind kind);

  /// Finds devices for the job that it may use now, all of one model. Skips groups in which a
  /// search for as few bytes has already failed in this pass.
  Found find(const WaitingJob& job, DeviceKind kind);
  void take(const WaitingJob& job, const std::vector<Fleet::Index>& devices);
  struct FitTime {
    int64_t time_us = kUnlimited;
    int32_t behind = -1;  // index of the reservation whose job must end first; -1: none
  };
  /// Returns when the job would fit if it were the next one after the jobs with reservations;
  /// kUnlimited if unknown.
  FitTime fit_time(const WaitingJob& job, DeviceKind kind) const;
  const Reservation& reservation(int32_t id) const {
    return reservations_[static_cast<size_t>(id)];
  }

  /// Reserves devices for a job that finds no room, in groups without a reservation, and preempts
  /// other jobs if the policy allows it. Returns the index of the new reservation, or of that of a
  /// job before it; -1 if no group could ever hold the job.
  int32_t reserve(const WaitingJob& job, DeviceKind kind);
  /// Returns whether a group of this kind has no reservation yet.
  bool may_reserve(const WaitingJob& job, DeviceKind kind) const;

  std::vector<Reservation> take_reservations() { return std::move(reservations_); }
  std::vector<PreemptDecision> take_preempts() { return std::move(preempts_); }
  /// Returns the earliest time at which a job has run long enough to be preempted, or a device has
  /// been reserved for its longest time; 0: no such time.
  int64_t wake_time_us() const { return wake_time_us_; }

 private:
  struct GroupState {
    int32_t reservation = -1;
    // In this pass, plans of this size or more fit nowhere in the group.
    int64_t none_from_bytes = kUnlimited;
  };
  struct Victims {
    Fleet::Index device = 0;
    int32_t priority_max = 0;
    double lost_us = 0;
    std::vector<const PlacedJob*> jobs;
  };
  bool suits(size_t group, DeviceKind kind, const WaitingJob& job) const;
  /// Returns the model's groups on which the job may run.
  std::vector<size_t> groups_for(const Fleet::Model& model, const WaitingJob& job) const;
  bool may_use(Fleet::Index device, const Fleet::Ask& ask, int64_t end_us) const;
  /// Returns until when a device is reserved for a job whose start time is unknown.
  int64_t kept_until_us(Fleet::Index device, const Reservation& reservation) const;
  bool find_in(const Fleet::Model& model, const WaitingJob& job, Found& found);
  /// Adds up to `count` devices of the group that the job may use now. Returns whether others had
  /// room but are reserved.
  bool add_free(size_t group, const WaitingJob& job, int32_t count, std::vector<Fleet::Key>& free);
  int64_t after_reserved(Fleet::Index device, const Fleet::Ask& ask, int64_t rest_us,
                         int64_t time_us) const;
  std::vector<std::pair<int64_t, Fleet::Index>> soonest(std::span<const size_t> groups,
                                                        const WaitingJob& job,
                                                        DeviceKind kind) const;
  /// Returns, for each model that could hold the job, its groups without a reservation. Sets
  /// `others` to a reservation of another group on which the job may run.
  std::vector<std::vector<size_t>> open_groups(const WaitingJob& job, DeviceKind kind,
                                               int32_t& others) const;
  /// Gives the group to the reservation with this ID.
  void keep(size_t group, int32_t id);
  Spare spare_at(Fleet::Index device, const Fleet::Ask& ask, int64_t time_us,
                 const std::vector<const PlacedJob*>& leaving) const;
  int64_t before_of(const Reservation& reservation) const;
  bool preempt(const WaitingJob& job, DeviceKind kind, Reservation& reservation);
  /// Returns the devices of the model that would have room for the job without jobs that it may
  /// preempt.
  std::vector<Victims> victims_in(const Fleet::Model& model, const WaitingJob& job,
                                  const Fleet::Ask& ask);
  void wake_at(int64_t time_us);
  bool find_victims(const WaitingJob& job, const Fleet::Ask& ask, Victims& victims);

  Fleet& fleet_;
  const Policy& policy_;
  const int64_t now_us_;
  std::vector<GroupState> groups_;
  std::vector<std::string> taken_;  // uids of the placed jobs
  std::vector<Reservation> reservations_;
  std::vector<PreemptDecision> preempts_;
  int64_t wake_time_us_ = 0;
};

}  // namespace trainyard::server
