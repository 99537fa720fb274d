#include "server/service/wire.h"

#include <grpcpp/impl/codegen/proto_utils.h>

#include "server/service/strict.h"

namespace trainyard::server {

Status parse_request(const grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  grpc::ByteBuffer copy(bytes);  // counts references; deserialising consumes it
  const grpc::Status parsed =
      grpc::GenericDeserialize<grpc::ProtoBufferReader, google::protobuf::Message>(&copy, &message);
  if (!parsed.ok()) {
    return make_error(ErrorCode::kInvalidArgument, "REQUEST_MALFORMED",
                      "the request is not a valid " + message.GetDescriptor()->full_name() +
                          ": cut short, not UTF-8, nested too deeply, or of another type");
  }
  return check_known_fields(message);
}

grpc::ByteBuffer to_bytes(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool own = true;
  const grpc::Status s = grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(
      message, &bytes, &own);
  TRAINYARD_CHECK(s.ok(), "a message of ours does not serialise: " + s.error_message());
  return bytes;
}

}  // namespace trainyard::server
