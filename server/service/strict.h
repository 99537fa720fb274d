// server/service/strict.h: what we do not understand, we refuse.
//
// Protobuf keeps unknown fields; a server that skipped them would train something else than what
// was asked for. Answers are not strict: an old client skips what a new server adds.
#pragma once

#include <google/protobuf/message.h>

#include "src/base/result.h"

namespace trainyard::server {

/// INVALID_ARGUMENT / FIELD_UNKNOWN names the message's path and the numbers, up to 16.
Status check_known_fields(const google::protobuf::Message& message);

}  // namespace trainyard::server
