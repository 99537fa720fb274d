// server/store/usage_books.h: the books of device use, from which quotas, fair share and reports
// are read.
//
// An attempt that starts enters a reservation with its forecast, in the transaction that starts it.
// The transaction that ends the attempt removes the reservation and adds the time that has passed
// to the use of each day. Without a reservation nothing is added, so an attempt is counted once.
// The books outlive jobs and their attempts. All functions run on the writer's connection or on a
// reader's, inside a transaction, and throw SqliteError.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/job.h"
#include "server/store/quota.h"
#include "server/store/sqlite.h"

namespace trainyard::server {

/// Returns the kind of a device in the books: "cpu", "gpu", or "clusters/slurm".
std::string device_kind_of(std::string_view device);

/// The time and the number of devices that a job will need at its next start, by its forecast or
/// else by its time limit; time times devices is 0 if both are unknown.
struct JobNeeds {
  int64_t devices = 1;
  int64_t device_us = 0;
};
JobNeeds needs_of(const JobBrief& job);

/// Enters the reservation of a new attempt, whose job is already STARTING on its devices.
void reserve_use(Connection& db, const Job& job, int32_t attempt, const DevicePrices& prices);

/// Replaces the reservation by the use of the attempt, which ended at `end_us`.
void settle_use(Connection& db, const Job& job, int32_t attempt, int64_t end_us);

/// Adds the measured energy of an attempt that has ended to its days.
struct MeasuredEnergy {
  std::string project;
  std::string person;
  std::string device_kind;
  int64_t devices = 1;
  int64_t start_us = 0;
  int64_t end_us = 0;
  double joules = 0;
};
void add_energy_use(Connection& db, const MeasuredEnergy& energy);

/// Returns the use from the day `first_day` until before `end_day`, including that of running
/// attempts until `now_us`, by day, project, person and kind of device.
std::vector<DeviceUse> read_device_uses(Connection& db, int64_t first_day, int64_t end_day,
                                        int64_t now_us);

/// Returns what is used of a quota of kDevices or kDeviceHours.
DeviceQuota device_quota_of(Connection& db, const Quota& quota, int64_t now_us);

}  // namespace trainyard::server
