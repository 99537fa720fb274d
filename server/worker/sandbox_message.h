// server/worker/sandbox_message.h: the worker's sandbox, as the daemon describes it.
#pragma once

#include <string_view>

#include "server/sandbox/sandbox.h"
#include "src/base/result.h"

namespace trainyard {

/// Reads the message WorkerSandbox. Nothing, which an earlier daemon sends, is no restriction.
/// FAILED_PRECONDITION/SANDBOX_UNAVAILABLE if it is no such message.
Result<server::Sandbox> read_sandbox(std::string_view bytes);

}  // namespace trainyard
