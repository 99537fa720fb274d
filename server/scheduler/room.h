// server/scheduler/room.h: where jobs fit during one look at the queue, what is reserved for those
// that do not, and who would make room for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/scheduler/fleet.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {

/// A fleet on trial: what is taken is given back at the end.
class Room {
 public:
  /// Devices for a job, or what is in its way.
  struct Found {
    std::vector<Fleet::Index> devices;  // empty: none
    int32_t reservation = -1;           // it would fit, but for this one
  };

  Room(Fleet& fleet, const Policy& policy, int64_t now_us);
  ~Room();
  /// Makes the fleet what it was. Call it when all is decided: an exception is seen here alone.
  void give_back();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  const Fleet& fleet() const { return fleet_; }
  static Fleet::Ask ask_of(const WaitingJob& job, DeviceKind kind);
  static int32_t count_of(const WaitingJob& job, DeviceKind kind);

  /// Does not look where nothing so large fits any more.
  Found find(const WaitingJob& job, DeviceKind kind);
  void take(const WaitingJob& job, const std::vector<Fleet::Index>& devices);
  struct FitTime {
    int64_t time_us = kUnlimited;
    int32_t behind = -1;  // a reservation: it waits for the end of that job
  };
  /// When it would fit if it were the next, but for those that have reservations; kUnlimited if
  /// that is unknown.
  FitTime fit_time(const WaitingJob& job, DeviceKind kind) const;
  const Reservation& reservation(int32_t id) const {
    return reservations_[static_cast<size_t>(id)];
  }

  /// Keeps room for a job that finds none, where no other has any reserved; by policy, others make
  /// room for it. Returns the reservation that it has, or else that of a job before it; -1: the
  /// devices are not there.
  int32_t reserve(const WaitingJob& job, DeviceKind kind);
  /// Whether devices of the kind are left of which nobody has any reserved.
  bool may_reserve(DeviceKind kind) const;

  std::vector<Reservation> take_reservations() { return std::move(reservations_); }
  std::vector<PreemptDecision> take_preempts() { return std::move(preempts_); }
  /// When a job has run long enough to make room, or a device has been kept for long enough; 0:
  /// none is waited for.
  int64_t wake_time_us() const { return wake_time_us_; }

 private:
  struct GroupState {
    int32_t reservation = -1;
    int64_t none_from_bytes = kUnlimited;  // so many fit nowhere, in this look
  };
  struct Victims {
    Fleet::Index device = 0;
    int32_t priority_max = 0;
    double lost_us = 0;
    std::vector<const PlacedJob*> jobs;
  };
  bool is_kind(size_t group, DeviceKind kind) const;
  bool may_use(Fleet::Index device, const Fleet::Ask& ask, int64_t end_us) const;
  /// Until when a device is kept for a job whose start is unknown.
  int64_t kept_until_us(Fleet::Index device, const Reservation& reservation) const;
  bool find_in(size_t group, const WaitingJob& job, int32_t count, Found& found);
  int64_t after_reserved(Fleet::Index device, const Fleet::Ask& ask, int64_t rest_us,
                         int64_t time_us) const;
  std::vector<std::pair<int64_t, Fleet::Index>> soonest(size_t group, const WaitingJob& job,
                                                        int32_t count) const;
  Spare spare_at(Fleet::Index device, const Fleet::Ask& ask, int64_t time_us,
                 const std::vector<const PlacedJob*>& leaving) const;
  int64_t before_of(const Reservation& reservation) const;
  bool preempt(const WaitingJob& job, DeviceKind kind, Reservation& reservation);
  void wake_at(int64_t time_us);
  bool find_victims(const WaitingJob& job, const Fleet::Ask& ask, Victims& victims);

  Fleet& fleet_;
  const Policy& policy_;
  const int64_t now_us_;
  std::vector<GroupState> groups_;
  std::vector<std::string> taken_;  // uids
  std::vector<Reservation> reservations_;
  std::vector<PreemptDecision> preempts_;
  int64_t wake_time_us_ = 0;
};

}  // namespace trainyard::server
