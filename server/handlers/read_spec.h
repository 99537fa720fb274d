// server/handlers/read_spec.h: the text of a spec as messages, for clients without a reader.
#pragma once

#include "src/base/result.h"
#include "trainyard/v1/job_service.pb.h"

namespace trainyard::server {

/// FIELD_REQUIRED and FIELD_OUT_OF_RANGE for the request; what is wrong with the text is a part of
/// the answer.
Result<v1::ReadSpecResponse> read_spec(const v1::ReadSpecRequest& request);

}  // namespace trainyard::server
