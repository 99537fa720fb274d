// server/rpc/wire.h: messages as bytes. Handlers take raw bytes, because the library's own
// answer to a request that does not parse is an empty UNIMPLEMENTED.
#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "server/rpc/element_count.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Counts the request's elements before it parses them (element_count.h), and refuses what we do
/// not understand (strict.h). INVALID_ARGUMENT/REQUEST_TOO_LARGE; INVALID_ARGUMENT/
/// REQUEST_MALFORMED; INVALID_ARGUMENT/FIELD_UNKNOWN.
Status parse_request(const grpc::ByteBuffer& bytes, google::protobuf::Message& message,
                     size_t elements_max = kRequestElementsMax);
/// The same, but for what we do not understand, which is skipped: of a worker, which may be newer
/// (server/protocol/versions.h).
Status parse_message(const grpc::ByteBuffer& bytes, google::protobuf::Message& message,
                     size_t elements_max = kRequestElementsMax);
grpc::ByteBuffer to_bytes(const google::protobuf::Message& message);

}  // namespace trainyard::server
