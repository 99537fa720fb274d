// server/store/quota.h: limits of projects and people, and the use of devices that the books have.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::server {

/// The numbers are those of v1::Quota::Kind and of the store.
enum class QuotaKind : uint8_t {
  kQueuedJobs = 1,   // jobs in QUEUED and PAUSED
  kDevices = 2,      // devices of jobs in STARTING and RUNNING
  kDeviceHours = 3,  // hours times devices in kQuotaDays, including reservations
  kStoredBytes = 4,  // uploads, datasets and models
  kModelCalls = 5,   // in a minute
};
/// The days of kDeviceHours: today and those before it, in UTC.
inline constexpr int64_t kQuotaDays = 30;
inline constexpr int64_t kQuotaHourUs = int64_t{3600} * 1'000'000;
inline constexpr int64_t kQuotaDayUs = 24 * kQuotaHourUs;
/// The largest number of quotas, and the largest limit of one.
inline constexpr int64_t kQuotasMax = 10'000;
inline constexpr int64_t kQuotaMax = int64_t{1} << 50;

/// The price of one device for an hour, by kind of device.
using DevicePrices = std::map<std::string, double, std::less<>>;

/// Returns "queued_jobs", "devices", "device_hours", "stored_bytes" or "model_calls".
std::string_view name_of(QuotaKind kind);
/// Returns the quota's number with its unit: "3 devices", "1 queued job", "1.5 device-hours".
/// Device time is given in microseconds.
std::string amount_text(QuotaKind kind, int64_t amount);

/// The project, the person, or the person in the project, to whom a quota applies.
struct QuotaScope {
  std::string project;  // empty: all projects
  std::string person;   // empty: all people of the project
  bool covers(std::string_view of_project, std::string_view of_person) const {
    return (project.empty() || project == of_project) && (person.empty() || person == of_person);
  }
  /// Returns "projects/vision", "alice" or "alice in projects/vision".
  std::string text() const;
};

struct Quota {
  QuotaKind kind = QuotaKind::kQueuedJobs;
  QuotaScope scope;
  int64_t max = 0;  // in hours for kDeviceHours
};

/// A quota, and how much of it is used.
struct QuotaUse {
  Quota quota;
  int64_t used = 0;  // device time in microseconds for kDeviceHours
};

/// A quota that the scheduler enforces: kDevices in devices, or kDeviceHours in microseconds of
/// device time.
struct DeviceQuota {
  /// A part of `used` that ends by itself at this time: a day leaves the window, or by forecast a
  /// job gives its devices back.
  struct End {
    int64_t time_us = 0;
    int64_t amount = 0;
  };
  QuotaKind kind = QuotaKind::kDevices;
  QuotaScope scope;
  int64_t max = 0;
  int64_t used = 0;
  std::vector<End> ends;  // by time; their sum is at most `used`
};

/// The use of devices on one day by one person in one project.
struct DeviceUse {
  int64_t day = 0;  // days since 1970-01-01 UTC
  std::string project;
  std::string person;
  std::string device_kind;   // cpu, gpu, or clusters/{cluster}
  int64_t device_us = 0;     // time times devices, of running attempts until now
  int64_t reserved_us = 0;   // the rest of the forecasts of running attempts
  int64_t priced_us = 0;     // the part of device_us that had a price
  double cost = 0;           // of that part
  int64_t metered_us = 0;    // the part of device_us whose energy was measured
  double energy_joules = 0;  // of that part
};

}  // namespace trainyard::server
