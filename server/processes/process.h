// server/processes/process.h: a child process, identified by its pidfd.
//
// The child gets its own process group, a clean environment and no descriptors except the standard
// three. It dies with the thread that spawned it (PR_SET_PDEATHSIG), so spawn it from a thread that
// lives as long as the daemon. A child that is to outlive the daemon instead keeps the reading end
// of its own output as descriptor 3, so that it can print while no process reads, and a later
// daemon can continue reading. Pids are reused, so a process is identified by (pid, start time).
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
  bool unknown = false;  // not known, because it was not a child of this process
};

struct SpawnRequest {
  std::filesystem::path program;
  std::vector<std::string> arguments;    // without argv[0]; never seen by a shell
  std::vector<std::string> environment;  // NAME=value; nothing is inherited
  bool outlives = false;                 // the process is to outlive the daemon
};

/// Not thread-safe.
class Process {
 public:
  /// Starts a process. INTERNAL/WORKER_START_FAILED names the system's error.
  static Result<Process> spawn(const SpawnRequest& request);
  /// Opens a process that an earlier daemon spawned to outlive it, with `tag` (NAME=value) in its
  /// environment; nothing if it has ended or another process has its pid.
  static std::optional<Process> adopt(pid_t pid, int64_t start_time, const std::string& tag);

  pid_t pid() const { return pid_; }
  int64_t start_time() const { return start_time_; }
  int pidfd() const { return pidfd_.get(); }    // readable once the process has ended
  int output() const { return output_.get(); }  // its stdout and stderr; non-blocking; may be -1

  /// Writes `text` (at most a pipe's buffer) to its stdin and closes it.
  Status write_stdin(std::string_view text);
  /// Signals the whole process group, so that what the worker has started ends too.
  void signal_group(int signal) const;
  /// Returns the status if the process has ended; nothing while it runs.
  std::optional<ExitStatus> reap();

 private:
  pid_t pid_ = -1;
  int64_t start_time_ = 0;
  UniqueFd pidfd_;
  UniqueFd stdin_;
  UniqueFd output_;
};

/// Returns field 22 of /proc/{pid}/stat, clock ticks since boot; 0 if there is no such process.
int64_t process_start_time(pid_t pid);
/// Returns the resident memory in bytes, without file-backed pages, of the process with this start
/// time; 0 if it has ended.
int64_t resident_bytes(pid_t pid, int64_t start_time);

/// Kills the processes that an ended child has left behind, however they have detached themselves:
/// this process's other children whose environment has `tag` (NAME=value), and processes that
/// become its children when these end. Waits briefly for their ends. Finds them only if this
/// process is a subreaper (PR_SET_CHILD_SUBREAPER). The cost depends on the number of this
/// process's threads and children, not on the machine's other processes. False if the kernel does
/// not list children.
bool end_tagged_children(const std::string& tag, const std::vector<pid_t>& running);

/// Kills all processes of this user whose environment has `tag`. For processes that may not have
/// become children of this process. Reads the environment of every process of the machine.
void end_tagged_anywhere(const std::string& tag);

/// Reaps ended children that are not in `running`: those killed above and those that a worker has
/// left behind. Stops at the first one in `running`, which its owner reaps.
void reap_orphans(const std::vector<pid_t>& running);

/// Returns the part of the daemon's environment that a worker gets: the system's paths, the locale,
/// and the settings of the compute libraries. In addition, CUDA shows the worker only the GPUs with
/// these UUIDs; empty UUIDs, of devices that have none, are ignored.
std::vector<std::string> worker_environment(const std::vector<std::string>& gpus);

/// Returns text such as "signal 9 (Killed)" or "exit code 3".
std::string describe(const ExitStatus& status);

}  // namespace trainyard::server
