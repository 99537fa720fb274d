// src/base/child_process.h: helpers for starting programs.
//
// `run_program()` is for programs that the caller simply waits for. The daemon's workers
// (server/processes) and the clusters' commands (server/cluster) call fork() themselves, because
// they must be monitored, be limited or outlive the daemon; they use the other functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/handle.h"

namespace trainyard {

/// Both ends are close-on-exec.
struct Pipe {
  UniqueFd read;
  UniqueFd write;

  /// Returns nothing on failure, with errno set.
  static std::optional<Pipe> make();
};

/// Returns the array that exec takes as argv or envp. It points into `texts` and ends with a null
/// pointer.
std::vector<char*> exec_array(const std::vector<std::string>& texts);

struct StandardFds {
  int input;
  int output;
  int errors;
};

/// Prepares a process between fork and exec: it leads a process group of its own, no signal is
/// blocked, SIGPIPE ends it, and `fds` are its standard descriptors. Async-signal-safe. False on
/// failure, with errno set.
bool prepare_child(const StandardFds& fds);

/// Sets close-on-exec on all descriptors from `first` on. Async-signal-safe. False on failure, with
/// errno set.
bool close_on_exec_from(unsigned first);

struct ProgramRun {
  std::string path;                         // not searched for in PATH
  std::vector<std::string> arguments = {};  // including argv[0]
  /// Descriptors; -1 inherits this process's own.
  StandardFds fds{-1, -1, -1};
  /// The program leads a process group of its own and ignores SIGINT, so that Ctrl-C ends only this
  /// process. run_program() then briefly changes this process's SIGINT handler, so two threads must
  /// not use this at the same time.
  bool ignores_interrupts = false;
};

/// Runs a program with this process's environment and blocks until it has ended. Returns the
/// status of waitpid(); nothing if it could not be started or waited for, with errno set.
std::optional<int> run_program(const ProgramRun& run);

}  // namespace trainyard
