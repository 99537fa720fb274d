// server/sandbox/system_calls.h: restricts system calls, by libseccomp: a list of those that
// exist for a profile; all others fail.
#pragma once

#include <sys/un.h>

#include "server/sandbox/description.h"
#include "src/base/result.h"

namespace trainyard::server {

bool can_filter_system_calls();

struct FilterOptions {
  SandboxProfile profile = SandboxProfile::kParse;
  bool runs_program = false;  // it may start a program, whose calls are filtered in the same way
  const sockaddr_un* address = nullptr;  // for kTrain: the one to which it may connect
};

/// Filters the calls of all threads of the process.
///
/// A call that is not allowed fails with EPERM and does not end the process: libraries try calls
/// that they can do without, and an attacker learns nothing from the difference. Calls that
/// libraries replace by older ones fail with ENOSYS, so that they do.
Status load_filter(const FilterOptions& options);

}  // namespace trainyard::server
