// client/lib/follow.h: a job's events to the end, across broken connections.
#pragma once

#include <functional>
#include <stop_token>

#include "client/lib/client.h"

namespace trainyard::client {

struct FollowHandler {
  /// The job as it was when a stream began (again after each reconnect).
  std::function<void(const v1::WatchJobResponse::Start&)> started;
  /// Each event once, in order. False stops following.
  std::function<bool(const v1::Event&)> event;
  /// The connection broke; retried after a pause, for up to kReconnectSecondsMax.
  std::function<void(const Error&)> reconnecting;
};
inline constexpr int kReconnectSecondsMax = 120;

/// Follows the events after `after` until a terminal state, a handler that returns false, or
/// `stop`; all three are OK. After UNAVAILABLE it resumes from the last seq seen. A gap behind
/// start.oldest_seq is DATA_LOSS/EVENT_GAP: the stream promises that this cannot happen.
Status follow_job(Client& client, const std::string& name, int64_t after, std::stop_token stop,
                  const FollowHandler& handler);

bool is_terminal(v1::JobState state);

}  // namespace trainyard::client
