// server/handlers/read_spec.h: converts the text of a spec to messages, for clients that cannot
// parse specs themselves.
#pragma once

#include "src/base/result.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

/// Error: FIELD_REQUIRED and FIELD_OUT_OF_RANGE for the request itself; errors in the text are part
/// of the response.
Result<v1::ReadSpecResponse> read_spec(const v1::ReadSpecRequest& request);

}  // namespace trainyard::server
