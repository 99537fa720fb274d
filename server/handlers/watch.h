// server/handlers/watch.h: the WatchJob streams.
//
// A stream requests the next events from the hub, writes them at the client's pace, and requests
// more. All streams at the same position share the same bytes, so a slow client costs only one
// block of memory (server/events/event_hub.h). After 15 s of silence a stream sends a heartbeat.
//
// Calls begin, read and are written to on the hub's threads. gRPC's threads, which also receive the
// workers' reports, only pass on that a write is done.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "server/dispatch/dispatcher.h"
#include "server/events/event_hub.h"
#include "server/handlers/call_frame.h"
#include "server/rpc/stream_limits.h"
#include "server/store/store.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

class WatchStream;

/// The live watch streams: their limit, their heartbeats, and their end at drain. Thread-safe.
/// Outlives the server, and thus every stream.
class WatchStreams {
 public:
  /// The daemon's parts that the streams use. They must outlive the streams.
  struct Parts {
    CallFrame& frame;
    const Clock& clock;
    Store& store;
    EventHub& hub;
    const Dispatcher& dispatcher;
    int streams_max = 0;
    int64_t heartbeat_ms = 15'000;  // a heartbeat is sent after this much silence
  };
  explicit WatchStreams(const Parts& parts);
  ~WatchStreams();

  grpc::ServerWriteReactor<grpc::ByteBuffer>* open(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request);
  /// Ends all current and later streams with UNAVAILABLE/SERVER_DRAINING.
  void drain();

 private:
  friend class WatchStream;
  /// Error: RESOURCE_EXHAUSTED/STREAM_LIMIT_REACHED; UNAVAILABLE/SERVER_DRAINING.
  Status admit_stream(const void* connection) TRAINYARD_REQUIRES(mu_);
  void remove(WatchStream* stream, const void* connection);
  std::vector<std::shared_ptr<WatchStream>> list() TRAINYARD_REQUIRES(mu_);
  void beat();

  const Parts parts_;
  Mutex mu_;
  CondVar changed_;
  bool draining_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool stopping_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::set<WatchStream*> streams_ TRAINYARD_GUARDED_BY(mu_);
  std::map<const void*, int> per_connection_ TRAINYARD_GUARDED_BY(mu_);
  size_t peak_ TRAINYARD_GUARDED_BY(mu_) = 0;  // most concurrent streams since there were none
  std::jthread thread_;                        // sleeps while there is no stream
};

}  // namespace trainyard::server
