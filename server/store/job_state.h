// server/store/job_state.h: the table of job states and the transitions between them.
//
// The enumerators have the same numbers as v1::JobState and the column jobs.state.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trainyard::server {

enum class JobState : uint8_t {
  kQueued = 1,
  kStarting = 2,
  kRunning = 3,
  kPaused = 4,
  kSucceeded = 5,
  kFailed = 6,
  kCancelled = 7,
};

inline constexpr std::array kJobStates = {
    JobState::kQueued,    JobState::kStarting, JobState::kRunning,  JobState::kPaused,
    JobState::kSucceeded, JobState::kFailed,   JobState::kCancelled};

/// Returns whether a job may go from one state to another. The store refuses every other move.
constexpr bool can_move(JobState from, JobState to) {
  using enum JobState;
  switch (from) {
    case kQueued:
      return to == kStarting || to == kPaused || to == kCancelled || to == kFailed;
    case kStarting:
      return to == kRunning || to == kQueued || to == kPaused || to == kCancelled || to == kFailed;
    case kRunning:
      return to == kSucceeded || to == kFailed || to == kCancelled || to == kPaused ||
             to == kQueued;  // preempted, or retried from its last checkpoint
    case kPaused:
      return to == kQueued || to == kCancelled;
    case kSucceeded:
    case kFailed:
    case kCancelled:
      return false;  // a terminal state is final
  }
  return false;
}

constexpr bool is_terminal(JobState s) {
  return s == JobState::kSucceeded || s == JobState::kFailed || s == JobState::kCancelled;
}
/// Returns whether a worker process of the job may exist.
constexpr bool is_active(JobState s) { return s == JobState::kStarting || s == JobState::kRunning; }

/// Returns the state's name in the protocol, such as "QUEUED".
constexpr std::string_view name_of(JobState s) {
  using enum JobState;
  switch (s) {
    case kQueued:
      return "QUEUED";
    case kStarting:
      return "STARTING";
    case kRunning:
      return "RUNNING";
    case kPaused:
      return "PAUSED";
    case kSucceeded:
      return "SUCCEEDED";
    case kFailed:
      return "FAILED";
    case kCancelled:
      return "CANCELLED";
  }
  return "UNKNOWN";
}

}  // namespace trainyard::server
