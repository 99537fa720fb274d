// server/handlers/backup_stream.h: SystemService.Backup.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>

#include "server/config/paths.h"
#include "server/handlers/call_frame.h"

namespace trainyard::server {

/// The state folder that a stream backs up. It must outlive the streams.
struct BackupSource {
  const StatePaths& paths;
  std::atomic<bool>& backing_up;  // true while a backup runs; only one may
  int64_t stall_ms = 0;           // how long its client may read nothing
};

grpc::ServerWriteReactor<grpc::ByteBuffer>* open_backup_stream(CallFrame& frame,
                                                               const BackupSource& source,
                                                               grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request);

}  // namespace trainyard::server
