// server/handlers/call_frame.h: what every call needs, whichever group of methods it belongs to.
#pragma once

#include <atomic>
#include <functional>
#include <stop_token>

#include "server/config/token.h"
#include "server/processes/executor.h"

namespace trainyard::server {

/// Owned, with what it refers to, by the Daemon; outlives every call.
struct CallFrame {
  Executor& executor;              // for handlers
  Executor& planning;              // for those that compute: others do not wait for them
  Executor& arrays;                // for those that compute for many jobs: single ones do not wait
  Executor& transfers;             // for streams of files: a slow disk holds up only those
  const Tokens* tokens = nullptr;  // null: none is required
  std::atomic<bool> draining{false};
  std::stop_source drain_stop = {};  // ends what calls compute; requested after `draining` is set
  // Called when the store refuses writes permanently. Set before the first call is served.
  std::function<void()> store_failed = [] {};
};

}  // namespace trainyard::server
