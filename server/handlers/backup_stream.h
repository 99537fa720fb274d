// server/handlers/backup_stream.h: SystemService.Backup.
#pragma once

#include <grpcpp/grpcpp.h>

#include "server/handlers/context.h"

namespace trainyard::server {

grpc::ServerWriteReactor<grpc::ByteBuffer>* open_backup_stream(ServiceContext& service,
                                                               grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request);

}  // namespace trainyard::server
