// server/store/owner_uses.h: what each owner has used of the devices of late, kept for as long as
// it counts: also when the jobs have been removed.
//
// In device-seconds: a job's devices times how long it has had them. What was used counts half
// after each half-life. It is written with the end of each attempt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::server {

class Connection;

/// An owner's use by attempts that have ended.
struct OwnerUse {
  std::string owner;
  double used = 0;  // device-seconds, as of
  int64_t as_of_us = 0;
};
/// What an attempt that goes on has of the devices.
struct AttemptUse {
  std::string owner;  // of its job
  int64_t devices = 0;
  int64_t start_us = 0;
};
struct Uses {
  std::vector<OwnerUse> past;
  std::vector<AttemptUse> running;
};

/// What `used` is worth after so many microseconds with so many devices: du/dt = devices - u ln2 /
/// half-life.
double use_after(double used, int64_t devices, int64_t us, int64_t half_life_us);

/// Adds an attempt that has ended, if uses are kept.
void note_use(Connection& db, const std::string& owner, int64_t devices, int64_t start_us,
              int64_t end_us);
/// From now on uses are kept with this half-life; 0: they are not. Where none were, what there is
/// of attempts that ended lately is counted.
void keep_uses(Connection& db, int64_t half_life_us, int64_t now_us);
Uses read_uses(Connection& db);

}  // namespace trainyard::server
