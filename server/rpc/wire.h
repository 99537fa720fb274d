// server/rpc/wire.h: converts between messages and bytes. Handlers receive raw bytes, because gRPC
// itself responds to a request that it cannot parse with UNIMPLEMENTED and no message.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "server/rpc/element_count.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Counts the request's elements before it parses them (element_count.h), and refuses unknown
/// fields (strict.h). INVALID_ARGUMENT/REQUEST_TOO_LARGE; INVALID_ARGUMENT/REQUEST_MALFORMED;
/// INVALID_ARGUMENT/FIELD_UNKNOWN.
Status parse_request(const grpc::ByteBuffer& bytes, google::protobuf::Message& message,
                     size_t elements_max = kRequestElementsMax);
/// Parses like parse_request(), but ignores unknown fields. For messages of workers, which may be
/// newer than the daemon (server/protocol/versions.h).
Status parse_message(const grpc::ByteBuffer& bytes, google::protobuf::Message& message,
                     size_t elements_max = kRequestElementsMax);
grpc::ByteBuffer to_bytes(const google::protobuf::Message& message);

}  // namespace trainyard::server
