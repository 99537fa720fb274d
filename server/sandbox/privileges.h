// server/sandbox/privileges.h: limits of a process's resources, and the end of its capabilities.
#pragma once

#include "server/sandbox/description.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Sets hard limits: no core files, few descriptors, and the sandbox's memory and size of a file.
/// Writing beyond that size then fails with EFBIG; the signal SIGXFSZ is ignored.
Status limit_resources(const Sandbox& sandbox);

/// Gives up all capabilities for ever, also those that executing a program could give back. Keeps
/// only CAP_DAC_READ_SEARCH, if the process has it and the task reads the server's own files
/// (Sandbox::sources), which may belong to other users.
Status drop_capabilities(const Sandbox& sandbox);

}  // namespace trainyard::server
