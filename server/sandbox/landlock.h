// server/sandbox/landlock.h: restricts files, by Landlock's system calls.
#pragma once

#include "server/sandbox/description.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Returns the kernel's ABI of Landlock; 0 if it has none or has it switched off.
int landlock_abi();

/// Restricts the calling thread, and threads that it starts later, to the sandbox's files, and with
/// newer ABIs also its TCP, abstract sockets and signals. `abi` is at least kLandlockAbiMin.
Status restrict_files(const Sandbox& sandbox, int abi);

}  // namespace trainyard::server
