// server/cluster/command.h: runs one command to its end, whatever it does.
//
// No shell, an environment of its own, no descriptors but the standard three, what it prints
// bounded, and a deadline after which its process group is killed. A process of ours in between
// (the keeper) waits for it: the daemon reaps whatever ended child it finds (server/processes),
// and its exit status would go with that. The command ends with the daemon, too.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

namespace trainyard::server {

struct CommandRequest {
  std::string program;                   // a path, or a name to be found in this process's PATH
  std::vector<std::string> arguments;    // without argv[0]
  std::vector<std::string> environment;  // NAME=value, all of it
  std::string input;
  int64_t timeout_ms = 60'000;
  int64_t output_bytes_max = 8 << 20;
  int64_t errors_bytes_max = 64 << 10;
  std::stop_token stop;  // requested: it has two more seconds, and none is started any more
};

struct CommandAnswer {
  enum class End : uint8_t {
    kExited,      // number: the exit status
    kSignalled,   // number: the signal
    kTimedOut,    // and was killed
    kTooMuch,     // it printed more than allowed, and was killed
    kStopped,     // it was to stop, and was killed or not started
    kNotStarted,  // number: errno. It did nothing
    kLost,        // nobody knows how it ended
  };
  End end = End::kLost;
  int number = 0;
  std::string output;
  std::string errors;  // the first of its bytes, should there be more

  bool succeeded() const { return end == End::kExited && number == 0; }
};

/// Blocks until the command has ended, at most timeout_ms (two seconds once it is to stop) and the
/// moment that killing takes.
/// Thread-safe.
CommandAnswer run_command(const CommandRequest& request);

/// How it ended, for people, with the first line of its errors: "exit status 1: sbatch: error:
/// ...". Bytes that are not printable ASCII are replaced.
std::string describe(const CommandAnswer& answer);

/// At most `bytes_max` bytes of a text, what is not printable ASCII as '?'.
std::string printable(std::string_view text, size_t bytes_max = 300);

}  // namespace trainyard::server
