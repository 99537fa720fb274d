// server/processes/process.h: one child process, proven by its pidfd.
//
// The child gets its own process group, a clean environment and no descriptors but the standard
// three. It dies with the thread that spawned it (PR_SET_PDEATHSIG; spawn from a thread that lives
// as long as the daemon), unless it is to outlive the daemon: then it also holds the reading end of
// its output as descriptor 3, so that it can print while nobody reads, and a later daemon can read
// on. A pid alone proves nothing, because pids are reused: (pid, start time) identifies a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/base/handle.h"
#include "src/base/result.h"

namespace trainyard::server {

struct ExitStatus {
  bool signalled = false;
  int number = 0;        // the exit code, or the signal
  bool unknown = false;  // it was not our child
};

struct SpawnRequest {
  std::filesystem::path program;
  std::vector<std::string> arguments;    // without argv[0]; never seen by a shell
  std::vector<std::string> environment;  // NAME=value, all of it
  bool outlives = false;                 // the daemon
};

/// Not thread-safe.
class Process {
 public:
  /// INTERNAL/WORKER_START_FAILED names the system's error.
  static Result<Process> spawn(const SpawnRequest& request);
  /// A process that an earlier daemon spawned to outlive it, with `tag` (NAME=value) in its
  /// environment; nothing if it is gone, or if that pid is another's by now.
  static std::optional<Process> adopt(pid_t pid, int64_t start_time, const std::string& tag);

  pid_t pid() const { return pid_; }
  int64_t start_time() const { return start_time_; }
  int pidfd() const { return pidfd_.get(); }    // readable once the process has ended
  int output() const { return output_.get(); }  // its stdout and stderr; non-blocking; may be -1

  /// Writes `text` (at most a pipe's buffer) to its stdin and closes it.
  Status write_stdin(std::string_view text);
  /// Signals the whole process group, so that what the worker has started ends too.
  void signal_group(int signal) const;
  /// The status once it has ended; nothing while it runs.
  std::optional<ExitStatus> reap();

 private:
  pid_t pid_ = -1;
  int64_t start_time_ = 0;
  UniqueFd pidfd_;
  UniqueFd stdin_;
  UniqueFd output_;
};

/// Field 22 of /proc/{pid}/stat, clock ticks since boot; 0 if there is no such process.
int64_t process_start_time(pid_t pid);
/// Memory of a process that began then, as far as it is in RAM and its own; 0: it is gone.
int64_t resident_bytes(pid_t pid, int64_t start_time);

/// Kills what a child of ours has left behind, however it has detached itself: those of our other
/// children whose environment has `tag` (NAME=value), and what becomes our child by their end.
/// Waits briefly for their end. Only finds it if we are a subreaper (PR_SET_CHILD_SUBREAPER).
/// Costs a look at each of our threads and children, however many processes the machine has. False
/// if the kernel does not tell our children.
bool end_tagged_children(const std::string& tag, const std::vector<pid_t>& running);

/// Kills all our user's processes whose environment has `tag`. For what a process has left behind
/// that is no child of ours, or while we are no subreaper: its parent may be anyone, so this reads
/// the environment of every process of the machine.
void end_tagged_anywhere(const std::string& tag);

/// Reaps ended children that are not in `running`: those killed above and those that a worker has
/// left behind. Stops at one of `running`, whose end is handled elsewhere.
void reap_orphans(const std::vector<pid_t>& running);

/// The part of the daemon's environment that a worker gets: the system's paths, the locale, and the
/// settings of the compute libraries; plus these GPUs, by UUID, as the only ones that CUDA shows.
/// Skips the empty UUID of a device that has none.
std::vector<std::string> worker_environment(const std::vector<std::string>& gpus);

/// "signal 9 (Killed)" or "exit code 3".
std::string describe(const ExitStatus& status);

}  // namespace trainyard::server
