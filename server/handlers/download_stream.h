// server/handlers/download_stream.h: one DownloadModel stream: a header and the bytes of each file.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/handlers/call_frame.h"
#include "server/handlers/model_handlers.h"

namespace trainyard::server {

grpc::ServerWriteReactor<grpc::ByteBuffer>* open_download_stream(
    CallFrame& frame, const StatePaths& state, const ModelParts& models,
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request);

}  // namespace trainyard::server
