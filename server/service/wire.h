// server/service/wire.h: messages as bytes. Handlers take raw bytes, because the library's own
// answer to a request that does not parse is an empty UNIMPLEMENTED.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "src/base/result.h"

namespace trainyard::server {

/// INVALID_ARGUMENT/REQUEST_MALFORMED; INVALID_ARGUMENT/FIELD_UNKNOWN.
Status parse_request(const grpc::ByteBuffer& bytes, google::protobuf::Message& message);
grpc::ByteBuffer to_bytes(const google::protobuf::Message& message);

}  // namespace trainyard::server
