// server/rpc/strict.h: refuses requests with unknown fields.
//
// Protobuf keeps unknown fields; a server that ignored them would train something other than
// requested. Responses are not checked: an old client ignores the fields that a new server adds.
#pragma once

#include <google/protobuf/message.h>

#include "src/base/result.h"

namespace trainyard::server {

/// Returns INVALID_ARGUMENT/FIELD_UNKNOWN with the path of the message and the numbers of its
/// unknown fields, up to 16.
Status check_known_fields(const google::protobuf::Message& message);

}  // namespace trainyard::server
