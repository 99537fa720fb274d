// server/handlers/call_frame.h: the data that the handlers of all calls need.
#pragma once

#include <atomic>
#include <functional>
#include <stop_token>

#include "server/handlers/open_streams.h"
#include "server/processes/executor.h"

namespace trainyard::server {

class Access;
class AuditStore;
class People;

/// The Daemon owns this struct and everything that it refers to; it outlives every call.
struct CallFrame {
  Executor& executor;  // for handlers
  Executor& planning;  // for handlers that compute, so that others do not wait for them
  // For handlers that compute for many jobs, so that those for single jobs do not wait.
  Executor& arrays;
  Executor& transfers;  // for streams of files, so that a slow disk delays only these
  People& people;
  const Access& access;
  AuditStore* audit = nullptr;  // null: calls are not recorded
  OpenStreams streams = {};
  std::atomic<bool> draining{false};
  std::stop_source drain_stop = {};  // stops computing calls; requested after `draining` is set
  // Called when the store refuses writes permanently. Set before the first call is served.
  std::function<void()> store_failed = [] {};
};

}  // namespace trainyard::server
