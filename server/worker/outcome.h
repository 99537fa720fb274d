// server/worker/outcome.h: turns the result of a computation into an outcome.
#pragma once

#include <functional>

#include "src/base/result.h"
#include "trainyard/v1/worker_service.pb.h"

namespace trainyard {

v1::Outcome succeeded();

/// Returns the outcome of `run`, also if `run` fails or throws. Never throws: no other place in the
/// worker catches faults.
v1::Outcome outcome_of(const std::function<Result<v1::Outcome>()>& run) noexcept;

}  // namespace trainyard
