// server/check/state_check.h: what of a state folder is damaged, and what to do about it. For
// `trainyardd --check`, with no daemon on the folder. Reads everything, changes nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "src/base/result.h"

namespace trainyard::server {

struct StateCheck {
  int64_t damaged = 0;       // findings that lose something
  int64_t unused_bytes = 0;  // of files that nothing refers to
  bool has_store = false;    // false: no daemon was ever started here
};

/// `line` gets each finding as it is made, "model    damaged  digits-1: ...", and one line for each
/// kind when it was read; `progress` a line before a kind is read. Errors: STATE_DIR_LOCKED while a
/// daemon runs. A store that cannot be read is a finding, and then the files cannot be looked at.
Result<StateCheck> check_state(const std::filesystem::path& state_dir,
                               const std::function<void(const std::string&)>& line,
                               const std::function<void(const std::string&)>& progress);

}  // namespace trainyard::server
