// server/scheduler/reasons.h: messages for people about the decisions of decide().
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "server/scheduler/fleet.h"
#include "server/scheduler/scheduler.h"

namespace trainyard::server {

/// The kind of device for a job, and why.
struct Choice {
  DeviceKind kind;
  std::string reason;
  std::string message;
  bool weighed = false;  // true if forecasts were compared
};
/// Chooses by the request and by the kinds of device that exist, busy or not, without forecasts.
DeviceKind kind_by_rule(const DeviceRequest& asked, const Fleet::Kinds& has);
Choice choose_kind(const DeviceRequest& asked, const Fleet::Kinds& has);

/// Stands for the name of a job in messages for readers of another project.
inline constexpr const char* kJobOfAnotherProject = "a job of another project";

/// Returns a duration as text: "40 s", "12 min", "2 h 5 min", "3 days 4 h". Negative durations are
/// "0 s".
std::string about(int64_t us);

/// Returns why a job of the blocked line waits. `fleet` must be the one for which `all` was
/// computed.
WaitReason reason_of(const Blocked& blocked, const WaitReasons& all, const WaitingJob& job,
                     const Fleet& fleet, const Policy& policy, int64_t now_us);

/// Returns why a quota holds the job back: QUOTA_DEVICES or QUOTA_DEVICE_HOURS. Nothing if none
/// does.
std::optional<WaitReason> quota_reason(const Quotas& quotas, const WaitingJob& job, int64_t now_us);

}  // namespace trainyard::server
