// proto/spec/writer.h: writes a stored job as a spec file that gives the same JobSpec.
#pragma once

#include <nlohmann/json.hpp>

#include "trainyard/v1/job_spec.pb.h"

namespace trainyard::spec {

/// Returns the fields of the spec file in order, without those that are not set; enum values are in
/// lower case. read_job() converts the result to the same message.
nlohmann::ordered_json write_spec(const v1::JobSpec& spec);

}  // namespace trainyard::spec
