// server/planning/digest.h: the digest that identifies a message.
#pragma once

#include <google/protobuf/message_lite.h>

#include <string>

namespace trainyard::server {

/// Returns the SHA-256 of the message, serialized with its maps sorted: equal content has an equal
/// digest while the .proto files stay the same.
std::string digest_of(const google::protobuf::MessageLite& message);

}  // namespace trainyard::server
