// client/lib/exit_code.h: exit codes by kind of failure (docs/cli.md).
#pragma once

#include "src/base/result.h"

namespace trainyard::client {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,  // the job failed, or an error without a better code
  kExitUsage = 2,   // usage, or an argument that the server refused
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
/// "NOT_FOUND", as gRPC writes it.
const char* code_name(ErrorCode code);

}  // namespace trainyard::client
