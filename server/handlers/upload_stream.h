// server/handlers/upload_stream.h: one UploadFile stream. Only its last message completes an
// upload: a stream that ends earlier, for whatever reason, pauses it.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "server/files/uploads.h"
#include "server/handlers/call_frame.h"

namespace trainyard::server {

grpc::ServerReadReactor<grpc::ByteBuffer>* open_upload_stream(CallFrame& frame, Uploads& uploads,
                                                              grpc::CallbackServerContext* context,
                                                              grpc::ByteBuffer* response);

}  // namespace trainyard::server
