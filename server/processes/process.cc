#include "server/processes/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <sstream>

#include "src/base/child_process.h"
#include "src/base/files.h"

extern char** environ;

namespace trainyard::server {
namespace {

Error start_failed(const char* what, int err) {
  return make_error(ErrorCode::kInternal, "WORKER_START_FAILED",
                    std::string("cannot start a worker: ") + what + ": " + std::strerror(err));
}

Result<Pipe> make_pipe() {
  std::optional<Pipe> pipe = Pipe::make();
  if (!pipe) return start_failed("pipe", errno);
  return std::move(*pipe);
}

int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

/// Returns the process's environment; empty for another user's process, an ended one, and one that
/// is in the middle of exec.
std::string environment_of(pid_t pid) {
  constexpr int64_t kEnvironmentBytesMax = 1 << 20;
  Result<std::string> environment =
      read_file("/proc/" + std::to_string(pid) + "/environ", kEnvironmentBytesMax);
  return environment.ok() ? std::move(environment).value() : "";
}

/// Returns whether the process has `tag` in its environment.
bool has_tag(pid_t pid, const std::string& tag) {
  const std::string environment = environment_of(pid);
  const std::string_view text = environment;
  for (size_t at = text.find(tag); at != std::string_view::npos; at = text.find(tag, at + 1)) {
    const size_t end = at + tag.size();
    if ((at == 0 || text[at - 1] == 0) && (end == text.size() || text[end] == 0)) return true;
  }
  return false;
}

/// Kills the process if it has `tag`, and waits briefly for its end. False if it does not have
/// `tag`.
bool kill_if_tagged(pid_t pid, const std::string& tag) {
  constexpr int kWaitMs = 50;  // most were in the killed group and have ended already
  // Opened before the check, so that it identifies the checked process.
  const UniqueFd pidfd(open_pidfd(pid));
  if (!pidfd || !has_tag(pid, tag)) return false;
  (void)::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
  pollfd entry{pidfd.get(), POLLIN, 0};
  (void)::poll(&entry, 1, kWaitMs);
  return true;
}

/// Returns the children of all threads of a process, because each thread has a list of its own.
/// `process` names its folder in /proc.
std::vector<pid_t> children_of(const std::string& process) {
  constexpr int64_t kListBytesMax = 1 << 20;
  std::vector<pid_t> children;
  std::error_code ec;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + process + "/task", ec)) {
    const Result<std::string> list = read_file(thread.path() / "children", kListBytesMax);
    if (!list.ok()) continue;  // it has ended
    std::istringstream pids(*list);
    for (pid_t pid = 0; pids >> pid;) children.push_back(pid);
  }
  return children;
}

constexpr int kOutputReader = 3;  // descriptor in a process that outlives the daemon

struct ChildDescriptors {
  int input;
  int output;
  int output_reader;  // -1: not kept in the child
  int error;          // reports errno; a successful exec closes it
};

/// Runs in the child between fork and exec: only async-signal-safe calls.
[[noreturn]] void become_worker(const char* program, char* const* argv, char* const* envp,
                                ChildDescriptors fds, bool outlives, pid_t parent) {
  const auto fail = [&]() {
    const int err = errno;
    (void)!::write(fds.error, &err, sizeof err);
    ::_exit(127);
  };
  if (!prepare_child({fds.input, fds.output, fds.output})) fail();
  if (!outlives) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail();
    if (::getppid() != parent) ::_exit(127);  // the daemon died before the line above
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail();
  // The kernel sends SIGHUP to a process group that has lost its last parent while one of its
  // processes is stopped.
  ::signal(SIGHUP, SIG_IGN);
  unsigned first_closed = kOutputReader;
  if (fds.output_reader >= 0) {
    fds.error = ::fcntl(fds.error, F_DUPFD_CLOEXEC, kOutputReader + 1);
    if (fds.error < 0) ::_exit(127);
    // dup2() of a descriptor to itself would leave close-on-exec set.
    if (fds.output_reader == kOutputReader && ::fcntl(kOutputReader, F_SETFD, 0) != 0) fail();
    if (::dup2(fds.output_reader, kOutputReader) < 0) fail();
    ++first_closed;
  }
  if (!close_on_exec_from(first_closed)) fail();
  ::execve(program, argv, envp);
  fail();
  ::_exit(127);
}

}  // namespace

Result<Process> Process::spawn(const SpawnRequest& request) {
  ASSIGN_OR_RETURN(Pipe in, make_pipe());
  ASSIGN_OR_RETURN(Pipe out, make_pipe());
  ASSIGN_OR_RETURN(Pipe error, make_pipe());
  if (::fcntl(out.read.get(), F_SETFL, O_NONBLOCK) != 0) return start_failed("fcntl", errno);
  // While no process reads the pipe, output that does not fit into it is dropped, because printing
  // must not block training.
  if (request.outlives && ::fcntl(out.write.get(), F_SETFL, O_NONBLOCK) != 0) {
    return start_failed("fcntl", errno);
  }

  std::vector<std::string> arguments = request.arguments;
  arguments.insert(arguments.begin(), request.program.string());
  const std::vector<char*> argv = exec_array(arguments);
  const std::vector<char*> envp = exec_array(request.environment);
  const std::string program = request.program.string();
  const pid_t parent = ::getpid();

  // vfork() runs no atfork handlers, which gRPC has, and does not copy the daemon's page tables.
  // Until execve() the child uses this process's memory and stack, and this thread waits.
  const pid_t pid = ::vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (pid < 0) return start_failed("fork", errno);
  if (pid == 0) {
    become_worker(
        program.c_str(), argv.data(), envp.data(),
        {in.read.get(), out.write.get(), request.outlives ? out.read.get() : -1, error.write.get()},
        request.outlives, parent);
  }
  Process process;
  process.pid_ = pid;
  process.pidfd_.reset(open_pidfd(pid));  // certainly this process, because it has not been reaped
  const int pidfd_error = errno;
  process.start_time_ = process_start_time(pid);
  error.write.reset();
  int err = 0;
  ssize_t n;
  do {
    n = ::read(error.read.get(), &err, sizeof err);
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(sizeof err) || !process.pidfd_) {
    ::kill(pid, SIGKILL);
    (void)::waitpid(pid, nullptr, 0);
    const int failure = n > 0 ? err : pidfd_error;
    // Without the path, because clients see this text.
    return start_failed(request.program.filename().c_str(), failure);
  }
  process.stdin_ = std::move(in.write);
  process.output_ = std::move(out.read);
  return process;
}

std::optional<Process> Process::adopt(pid_t pid, int64_t start_time, const std::string& tag) {
  if (pid <= 1 || start_time == 0) return std::nullopt;
  Process process;
  process.pid_ = pid;
  process.start_time_ = start_time;
  process.pidfd_.reset(open_pidfd(pid));
  // The process may be in the middle of exec, when its environment cannot be read.
  for (int i = 0; i < 20 && environment_of(pid).empty(); ++i) ::usleep(1000);
  // The pidfd was opened first: if the checks succeed after that, it refers to the same process.
  if (!process.pidfd_ || process_start_time(pid) != start_time || !has_tag(pid, tag)) {
    return std::nullopt;
  }
  const std::string output =
      "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(kOutputReader);
  process.output_.reset(::open(output.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  return process;
}

Status Process::write_stdin(std::string_view text) {
  // The write fails if the worker has already ended; the daemon ignores SIGPIPE.
  const ssize_t n = ::write(stdin_.get(), text.data(), text.size());
  const int err = errno;
  stdin_.reset();
  if (n != static_cast<ssize_t>(text.size())) return start_failed("write to its stdin", err);
  return {};
}

void Process::signal_group(int signal) const { (void)::kill(-pid_, signal); }

std::optional<ExitStatus> Process::reap() {
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) == 0) {
    if (info.si_pid == 0) return std::nullopt;
    return ExitStatus{.signalled = info.si_code != CLD_EXITED, .number = info.si_status};
  }
  pollfd entry{pidfd_.get(), POLLIN, 0};  // not a child of this process
  if (::poll(&entry, 1, 0) != 1) return std::nullopt;
  return ExitStatus{.unknown = true};
}

int64_t process_start_time(pid_t pid) {
  Result<std::string> stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!stat.ok()) return 0;
  const size_t end_of_name = stat->rfind(')');  // the name may contain spaces and parentheses
  if (end_of_name == std::string::npos) return 0;
  std::string_view rest = std::string_view(*stat).substr(end_of_name + 1);
  long long start = 0;
  for (int field = 3; field <= 22; ++field) {
    const size_t begin = rest.find_first_not_of(' ');
    if (begin == std::string_view::npos) return 0;
    rest.remove_prefix(begin);
    if (field == 22) return std::sscanf(rest.data(), "%lld", &start) == 1 ? start : 0;
    rest.remove_prefix(std::min(rest.size(), rest.find(' ')));
  }
  return 0;
}

int64_t resident_bytes(pid_t pid, int64_t start_time) {
  if (process_start_time(pid) != start_time) return 0;
  const Result<std::string> pages = read_file("/proc/" + std::to_string(pid) + "/statm", 4096);
  long long size = 0, resident = 0, shared = 0;
  if (!pages.ok() || std::sscanf(pages->c_str(), "%lld %lld %lld", &size, &resident, &shared) != 3)
    return 0;
  return (resident - shared) * ::sysconf(_SC_PAGESIZE);
}

bool end_tagged_children(const std::string& tag, const std::vector<pid_t>& running) {
  if (::access("/proc/thread-self/children", R_OK) != 0) return false;  // no CONFIG_PROC_CHILDREN
  std::set<pid_t> seen(running.begin(), running.end());
  for (bool killed = true; killed;) {  // a killed process's children become this process's
    killed = false;
    std::vector<pid_t> to_visit = children_of("self");
    for (size_t i = 0; i < to_visit.size(); ++i) {
      const pid_t pid = to_visit[i];
      if (!seen.insert(pid).second || !has_tag(pid, tag)) continue;
      const std::vector<pid_t> started = children_of(std::to_string(pid));
      to_visit.insert(to_visit.end(), started.begin(), started.end());
      killed = kill_if_tagged(pid, tag) || killed;
    }
  }
  return true;
}

void end_tagged_anywhere(const std::string& tag) {
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ec)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    (void)kill_if_tagged(static_cast<pid_t>(std::atoi(name.c_str())), tag);
  }
}

void reap_orphans(const std::vector<pid_t>& running) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (std::find(running.begin(), running.end(), info.si_pid) != running.end()) return;
    (void)::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

std::vector<std::string> worker_environment(const std::vector<std::string>& gpus) {
  constexpr std::string_view kVisible = "CUDA_VISIBLE_DEVICES=";
  constexpr std::array kNames = {"PATH=", "HOME=", "TMPDIR=", "LANG=", "TZ=", "LD_LIBRARY_PATH="};
  constexpr std::array kFamilies = {"LC_",   "OMP_",  "GOMP_",  "KMP_",  "DNNL_",     "ONEDNN_",
                                    "CUDA_", "CUDNN", "NVIDIA", "NCCL_", "TRAINYARD_"};
  std::string visible;
  for (const std::string& uuid : gpus) {
    if (!uuid.empty()) visible += (visible.empty() ? "" : ",") + uuid;
  }
  std::vector<std::string> out;
  if (!visible.empty()) out.push_back(std::string(kVisible) + visible);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool take = false;
    for (const char* name : kNames) take = take || text.starts_with(name);
    for (const char* family : kFamilies) take = take || text.starts_with(family);
    if (!visible.empty() && text.starts_with(kVisible)) take = false;
    if (take) out.emplace_back(text);
  }
  return out;
}

std::string describe(const ExitStatus& status) {
  if (!status.signalled) return "exit code " + std::to_string(status.number);
  const char* text = ::sigdescr_np(status.number);
  return "signal " + std::to_string(status.number) + " (" + (text != nullptr ? text : "unknown") +
         ")";
}

}  // namespace trainyard::server
