// server/daemon/init_admin.h: makes the first admin, while the daemon is stopped.
#pragma once

#include <string>

#include "server/config/config.h"
#include "src/base/result.h"

namespace trainyard::server {

struct InitialAdmin {
  std::string name;
  std::string token;  // its text, which is stored nowhere
  int64_t expire_time_us = 0;
};

/// `trainyardd --init-admin NAME`: makes the person an admin, with a token "init-admin" that
/// replaces an earlier one of that name. root acts as the owner of state_dir, so that the daemon
/// can still write what this writes; it does not change back. Errors: NAME_MALFORMED;
/// FAILED_PRECONDITION/DAEMON_RUNS, STATE_DIR_MISSING; those of Store::open().
Result<InitialAdmin> init_admin(const Config& config, const std::string& name);

}  // namespace trainyard::server
