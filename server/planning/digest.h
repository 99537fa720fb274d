// server/planning/digest.h: a message's identity.
#pragma once

#include <google/protobuf/message_lite.h>

#include <string>

namespace trainyard::server {

/// SHA-256 of the message with its maps in order: equal content, equal digest, on this version of
/// the contract.
std::string digest_of(const google::protobuf::MessageLite& message);

}  // namespace trainyard::server
