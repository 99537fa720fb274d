// server/store/owner_uses.h: each owner's recent use of devices, which outlives the rows of the
// jobs.
//
// Use is measured in device-seconds: the number of a job's devices times the seconds it has had
// them. Past use decays exponentially with a half-life. It is a view of the books
// (server/store/usage_books.h): settle_use() adds to both, and running attempts are the
// reservations there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::server {

class Connection;

/// An owner's decayed use by attempts that have ended.
struct OwnerUse {
  std::string owner;
  double used = 0;  // device-seconds at the time as_of_us
  int64_t as_of_us = 0;
};
/// The devices that a live attempt occupies.
struct AttemptUse {
  std::string owner;  // the owner of its job
  int64_t devices = 0;
  int64_t start_us = 0;
};
struct Uses {
  std::vector<OwnerUse> past;
  std::vector<AttemptUse> running;
};

/// Returns the use, in device-seconds, after another `us` microseconds on `devices` devices,
/// starting from `used`: the solution u of du/dt = devices - u ln2 / half-life.
double use_after(double used, int64_t devices, int64_t us, int64_t half_life_us);

/// Adds the use of an attempt that has ended, if use is being counted. Only settle_use() calls it.
void note_use(Connection& db, const std::string& owner, int64_t devices, int64_t start_us,
              int64_t end_us);
/// Starts to count use with this half-life, or changes the half-life; 0 stops it and deletes the
/// counts. When counting starts, the stored attempts that ended recently are counted.
void keep_uses(Connection& db, int64_t half_life_us, int64_t now_us);
Uses read_uses(Connection& db);

}  // namespace trainyard::server
