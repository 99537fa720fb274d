#include "server/rpc/wire.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include "server/rpc/strict.h"

namespace trainyard::server {

Status parse_request(const grpc::ByteBuffer& bytes, google::protobuf::Message& message,
                     size_t elements_max) {
  if (Status s = parse_message(bytes, message, elements_max); !s.ok()) return s;
  return check_known_fields(message);
}

Status parse_message(const grpc::ByteBuffer& bytes, google::protobuf::Message& message,
                     size_t elements_max) {
  grpc::ByteBuffer copy(bytes);  // reference-counted; reading consumes it
  if (grpc::ProtoBufferReader reader(&copy); reader.status().ok()) {
    const Status s = check_element_count(reader, *message.GetDescriptor(), elements_max);
    if (!s.ok()) return s;
  }
  copy = bytes;
  const grpc::Status parsed =
      grpc::GenericDeserialize<grpc::ProtoBufferReader, google::protobuf::Message>(&copy, &message);
  if (!parsed.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "REQUEST_MALFORMED",
                      "the request is not a valid " + message.GetDescriptor()->full_name() +
                          ": cut short, not UTF-8, nested too deeply, or of another type");
  }
  return {};
}

grpc::ByteBuffer to_bytes(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool own = true;
  const grpc::Status s = grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(
      message, &bytes, &own);
  TRAINYARD_CHECK(s.ok(), "a message of this program cannot be serialized: " + s.error_message());
  return bytes;
}

}  // namespace trainyard::server
