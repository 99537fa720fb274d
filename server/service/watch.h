// server/service/watch.h: the WatchJob streams.
//
// A stream is a cursor: it reads a bounded batch of events from the store, writes them one at a
// time as the client takes them, and reads the next batch. A slow client therefore costs one batch
// of memory and nothing else. When the cursor has caught up, it waits for the hub; after 15 s of
// silence it sends a heartbeat.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "server/service/context.h"
#include "src/base/mutex.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

class WatchStream;

/// The live watch streams: their limit, their heartbeats, and their end at drain. Thread-safe.
/// Outlives the server, and thus every stream.
class WatchStreams {
 public:
  WatchStreams(ServiceContext& service, int64_t heartbeat_ms);
  ~WatchStreams();

  grpc::ServerWriteReactor<grpc::ByteBuffer>* open(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request);
  /// Ends every stream with UNAVAILABLE/SERVER_DRAINING, and those that come later.
  void drain();

 private:
  friend class WatchStream;
  void remove(WatchStream* stream);
  std::vector<std::shared_ptr<WatchStream>> list() TRAINYARD_REQUIRES(mu_);
  void beat();

  ServiceContext& service_;
  const int64_t heartbeat_ms_;
  Mutex mu_;
  CondVar changed_;
  bool draining_ TRAINYARD_GUARDED_BY(mu_) = false;
  bool stopping_ TRAINYARD_GUARDED_BY(mu_) = false;
  std::set<WatchStream*> streams_ TRAINYARD_GUARDED_BY(mu_);
  std::jthread thread_;  // sleeps while there is no stream
};

}  // namespace trainyard::server
