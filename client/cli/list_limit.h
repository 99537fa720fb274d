// client/cli/list_limit.h: --limit of commands that list. On a terminal a list ends after a screen
// or two, with a note; what a program reads is whole unless --limit is given.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "client/cli/options.h"
#include "client/cli/session.h"

namespace trainyard::cli {

class ListLimit {
 public:
  /// Adds --limit. `entries` names what is listed; `on_screen` is the default on a terminal.
  void add_option(OptionSet& options, const std::string& entries, int64_t on_screen) {
    on_screen_ = on_screen;
    options.integer("--limit", "N", given_,
                    "show at most N " + entries + "; default " + std::to_string(on_screen) +
                        " on a terminal, else all");
  }
  /// Returns the largest number of entries to show. Refuses numbers below 1.
  Result<int64_t> count(Session& session) const {
    if (given_ != kNotGiven && given_ < 1) {
      return usage_error("--limit: " + std::to_string(given_) + ", expected at least 1");
    }
    if (given_ != kNotGiven) return given_;
    const bool on_screen = !session.machine() && session.out().is_terminal();
    return on_screen ? on_screen_ : std::numeric_limits<int64_t>::max();
  }

 private:
  static constexpr int64_t kNotGiven = std::numeric_limits<int64_t>::min();
  int64_t given_ = kNotGiven;
  int64_t on_screen_ = 0;
};

}  // namespace trainyard::cli
