// server/rpc/strict.h: refuses what we do not understand.
//
// Protobuf keeps unknown fields; a server that skipped them would train something other than
// requested. Answers are not strict: an old client skips what a new server adds.
#pragma once

#include <google/protobuf/message.h>

#include "src/base/result.h"

namespace trainyard::server {

/// INVALID_ARGUMENT / FIELD_UNKNOWN names the message's path and the numbers, up to 16.
Status check_known_fields(const google::protobuf::Message& message);

}  // namespace trainyard::server
