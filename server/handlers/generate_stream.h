// server/handlers/generate_stream.h: one Generate stream: the text as it is generated.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/handlers/call_frame.h"
#include "server/handlers/model_handlers.h"

namespace trainyard::server {

grpc::ServerWriteReactor<grpc::ByteBuffer>* open_generate_stream(
    CallFrame& frame, const ModelParts& models, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer* request);

}  // namespace trainyard::server
