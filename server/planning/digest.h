// server/planning/digest.h: the digest that identifies a message.
#pragma once

#include <google/protobuf/message_lite.h>

#include <string>
#include <string_view>

#include "src/base/sha256.h"

namespace trainyard::server {

/// Returns the SHA-256 of the message, serialized with its maps sorted: equal content has an equal
/// digest while the .proto files stay the same.
std::string digest_of(const google::protobuf::MessageLite& message);

/// Returns the digest of a person's request without its request ID. A repetition has the same
/// digest. The same request of another person has a different one, so that the other person does
/// not get this person's job by its request ID.
template <typename Request>
std::string digest_of_request(Request request, std::string_view person) {
  request.clear_request_id();
  return sha256_hex(digest_of(request) + " " + std::string(person));
}

}  // namespace trainyard::server
