// client/lib/follow.h: follows a job's events to its end, across broken connections.
#pragma once

#include <functional>
#include <stop_token>

#include "client/lib/client.h"

namespace trainyard::client {

struct FollowHandler {
  /// Called with the job as of the start of a stream, again after each reconnect.
  std::function<void(const v1::WatchJobResponse::Start&)> started;
  /// Called with each event once, in order. Returns false to stop following.
  std::function<bool(const v1::Event&)> event;
  /// Called when the connection breaks, before a pause and a new attempt; attempts continue for up
  /// to kReconnectSecondsMax.
  std::function<void(const Error&)> reconnecting;
};
inline constexpr int kReconnectSecondsMax = 120;

/// Follows the events after `after` until a terminal state, a handler that returns false, or
/// `stop`; all three are OK. After UNAVAILABLE it resumes from the last seq seen. A gap after
/// start.oldest_seq, which the protocol excludes, is DATA_LOSS/EVENT_GAP.
Status follow_job(Client& client, const std::string& name, int64_t after, std::stop_token stop,
                  const FollowHandler& handler);

bool is_terminal(v1::JobState state);

}  // namespace trainyard::client
