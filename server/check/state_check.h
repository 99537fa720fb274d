// server/check/state_check.h: finds damage in a state folder and says what to do about it. Used by
// `trainyardd --check` while no daemon uses the folder. Reads all files and changes none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "src/base/result.h"

namespace trainyard::server {

struct StateCheck {
  int64_t damaged = 0;       // number of findings that mean lost data
  int64_t unused_bytes = 0;  // size of the files to which nothing refers
  bool has_store = false;    // false: no daemon was ever started here
};

/// `line` is called with each finding, such as "model damaged digits-1: ...", and with one line
/// after each kind of file was checked. `progress` is called with a line before each kind is
/// checked. Error: STATE_DIR_LOCKED while a daemon runs. An unreadable store is a finding; the
/// files cannot be checked then.
Result<StateCheck> check_state(const std::filesystem::path& state_dir,
                               const std::function<void(const std::string&)>& line,
                               const std::function<void(const std::string&)>& progress);

}  // namespace trainyard::server
