// server/cluster/command.h: runs a command and waits until it has ended.
//
// The command runs without a shell, with its own environment and with only the three standard
// descriptors. Its output is limited, and after a deadline its process group is killed. A child
// process of the daemon, the keeper, waits for the command, because the daemon reaps all ended
// children that it finds (server/processes) and would lose the command's exit status. If the daemon
// ends, the command is killed, too.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

namespace trainyard::server {

struct CommandRequest {
  // A path, or a name that is searched for in this process's PATH.
  std::string program;
  std::vector<std::string> arguments;    // without argv[0]
  std::vector<std::string> environment;  // NAME=value; nothing is inherited
  std::string input;
  int64_t timeout_ms = 60'000;
  int64_t output_bytes_max = 8 << 20;
  int64_t errors_bytes_max = 64 << 10;
  std::stop_token stop;  // when requested, the command is killed after 2 s, and no more are started
};

struct CommandAnswer {
  enum class End : uint8_t {
    kExited,      // number: the exit status
    kSignalled,   // number: the signal
    kTimedOut,    // it was killed at the deadline
    kTooMuch,     // it was killed because it printed too much
    kStopped,     // killed or not started, because `stop` was requested
    kNotStarted,  // number: errno
    kLost,        // it is not known how it ended
  };
  End end = End::kLost;
  int number = 0;
  std::string output;
  std::string errors;  // the beginning of its error output, at most errors_bytes_max

  bool succeeded() const { return end == End::kExited && number == 0; }
};

/// Blocks until the command has ended: at most timeout_ms (2 s after a stop is requested) and the
/// time that killing takes. Thread-safe.
CommandAnswer run_command(const CommandRequest& request);

/// Describes for people how the command ended, with the first line of its errors: "exit status 1:
/// sbatch: error: ...". Replaces bytes that are not printable ASCII.
std::string describe(const CommandAnswer& answer);

/// Returns the first `bytes_max` bytes of a text, with '?' for each byte that is not printable
/// ASCII.
std::string printable(std::string_view text, size_t bytes_max = 300);

}  // namespace trainyard::server
