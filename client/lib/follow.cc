#include "client/lib/follow.h"

#include <algorithm>
#include <chrono>

#include "proto/metrics/packed_metrics.h"
#include "src/base/wait_for_stop.h"

namespace trainyard::client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

}  // namespace

bool is_terminal(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
}

Status follow_job(Client& client, const std::string& name, int64_t after, std::stop_token stop,
                  const FollowHandler& handler) {
  int64_t seen = after;
  int64_t oldest = 0;  // from this number on, the server promises all events
  bool ended = false;  // a terminal state arrived, or the handler returned false
  Status gap;
  milliseconds pause{100};
  bool answered = false;  // an error before the first response is returned immediately
  Clock::time_point last_answer = Clock::now();
  const auto take = [&](v1::Event& event) {  // returns false after the last event
    // In a job whose old events were thinned, events before oldest_seq may be missing.
    if (event.seq() != seen + 1 && (event.seq() <= seen || event.seq() > oldest)) {
      gap = make_error(
          ErrorCode::kDataLoss, "EVENT_GAP",
          "event " + std::to_string(event.seq()) + " came after event " + std::to_string(seen));
      return false;
    }
    if (!unpack_metrics(event)) {
      gap = make_error(ErrorCode::kDataLoss, "EVENT_DAMAGED",
                       "the metrics of event " + std::to_string(event.seq()) + " are damaged");
      return false;
    }
    seen = event.seq();
    if (handler.event && !handler.event(event)) {
      ended = true;
      return false;
    }
    if (event.has_state() && is_terminal(event.state().state())) ended = true;
    return true;
  };
  while (true) {
    v1::WatchJobRequest request;
    request.set_name(name);
    request.set_after(seen);
    request.set_packed(true);
    Status status = client.watch_job(request, stop, [&](v1::WatchJobResponse& message) {
      answered = true;
      last_answer = Clock::now();
      pause = milliseconds(100);
      if (message.has_start()) {
        oldest = message.start().oldest_seq();
        if (handler.started) handler.started(message.start());
        // The stream of a finished job sends nothing after the last event.
        ended = is_terminal(message.start().job().state()) && message.start().newest_seq() <= seen;
        return !ended;
      }
      // A heartbeat has no events.
      return std::ranges::all_of(*message.mutable_events(), take);
    });
    if (!gap.ok()) return gap;
    if (ended || stop.stop_requested()) return {};
    if (status.ok()) {  // the stream ended before the job: handled like a broken connection
      status = make_error(ErrorCode::kUnavailable, "STREAM_ENDED", "the event stream ended early");
    }
    if (status.error().code != ErrorCode::kUnavailable || !answered ||
        Clock::now() - last_answer > std::chrono::seconds(kReconnectSecondsMax)) {
      return status;
    }
    if (handler.reconnecting) handler.reconnecting(status.error());
    wait_for_stop(stop, pause);
    pause = std::min(pause * 2, milliseconds(2000));
  }
}

}  // namespace trainyard::client
