#include "src/base/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

extern char** environ;

namespace trainyard {
namespace {

/// Returns 0 or an errno value, as posix_spawn() does.
int spawn(const ProgramRun& run, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  const std::array standard{run.fds.input, run.fds.output, run.fds.errors};
  for (size_t i = 0; i < standard.size(); ++i) {
    if (standard[i] >= 0) {
      ::posix_spawn_file_actions_adddup2(&actions, standard[i], static_cast<int>(i));
    }
  }
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGTERM);
  if (!run.ignores_interrupts) sigaddset(&defaults, SIGINT);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  const int group = run.ignores_interrupts ? POSIX_SPAWN_SETPGROUP : 0;
  ::posix_spawnattr_setflags(
      &attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
  ::posix_spawnattr_setpgroup(&attributes, 0);
  const int failure = ::posix_spawn(&pid, run.path.c_str(), &actions, &attributes,
                                    exec_array(run.arguments).data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return failure;
}

}  // namespace

std::optional<Pipe> Pipe::make() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return std::nullopt;
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::vector<char*> exec_array(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

bool prepare_child(const StandardFds& fds) {
  sigset_t none;
  sigemptyset(&none);
  return ::setpgid(0, 0) == 0 && ::sigprocmask(SIG_SETMASK, &none, nullptr) == 0 &&
         ::signal(SIGPIPE, SIG_DFL) != SIG_ERR && ::dup2(fds.input, STDIN_FILENO) >= 0 &&
         ::dup2(fds.output, STDOUT_FILENO) >= 0 && ::dup2(fds.errors, STDERR_FILENO) >= 0;
}

bool close_on_exec_from(unsigned first) {
  return ::syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) == 0;
}

std::optional<int> run_program(const ProgramRun& run) {
  // The child starts in this process group, which Ctrl-C signals, and must ignore SIGINT until it
  // has its own group.
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  if (run.ignores_interrupts) ::sigaction(SIGINT, &ignore, &before);
  pid_t pid = 0;
  const int failure = spawn(run, pid);
  if (run.ignores_interrupts) ::sigaction(SIGINT, &before, nullptr);
  if (failure != 0) {
    errno = failure;
    return std::nullopt;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return std::nullopt;
  }
  return status;
}

}  // namespace trainyard
