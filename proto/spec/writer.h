// proto/spec/writer.h: a stored job as the spec file that gives the same JobSpec again.
#pragma once

#include <nlohmann/json.hpp>

#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::spec {

/// The fields that a spec file would have, in their order: what is not set is left out, names of
/// enums are in lower case. read_job() makes the same message of it.
nlohmann::ordered_json write_spec(const v1::JobSpec& spec);

}  // namespace trainyard::spec
