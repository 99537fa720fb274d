// client/lib/exit_code.h: the exit code for each kind of failure (docs/cli.md).
#pragma once

#include "src/base/result.h"

namespace trainyard::client {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,  // the job failed, or an error without its own code
  kExitUsage = 2,   // wrong usage, or the server refused an argument
  kExitNotAllowed = 3,
  kExitNotFound = 4,
  kExitConflict = 5,
  kExitFull = 6,
  kExitUnavailable = 7,  // safe to retry
  kExitCancelled = 8,    // the job was cancelled
  kExitTimeout = 124,
  kExitInterrupted = 130,
};

ExitCode exit_code_of(const Error& error);
/// Returns the name as gRPC writes it: "NOT_FOUND".
const char* code_name(ErrorCode code);

}  // namespace trainyard::client
