// client/cli/secret_input.h: reads a secret from the terminal, without showing it.
#pragma once

#include <string>

#include "client/cli/session.h"

namespace trainyard::cli {

/// Asks on stderr and reads a line from stdin, a terminal, without echo. CANCELLED for Ctrl-C,
/// after which the terminal echoes again.
Result<std::string> ask_secret(Session& session, const std::string& question);

}  // namespace trainyard::cli
