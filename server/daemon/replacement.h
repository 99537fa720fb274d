// server/daemon/replacement.h: tries the program that is to replace the daemon in place.
#pragma once

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard::server {

struct ReplacementTrial {
  std::filesystem::path program;
  std::vector<std::string> arguments;  // of this daemon, without argv[0]
  // A line that the program must print, so that one that accepts everything is not taken for a
  // trainyardd.
  std::string line;
  sigset_t interrupts;  // signals that end the trial; blocked in all threads, and left pending
  std::chrono::milliseconds time_max{10'000};
};

/// Runs the program with the arguments and --print-config, and kills it at the end of the trial.
/// FAILED_PRECONDITION/PROGRAM_NOT_USABLE says why it cannot replace the daemon;
/// CANCELLED/STOPPED after one of the signals.
Status try_replacement(const ReplacementTrial& trial);

}  // namespace trainyard::server
