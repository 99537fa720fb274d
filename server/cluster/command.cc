#include "server/cluster/command.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stop_token>
#include <string_view>

#include "src/base/child_process.h"
#include "src/base/handle.h"

namespace trainyard::server {
namespace {

using End = CommandAnswer::End;

constexpr int kDrainMs = 2'000;  // the time that the kernel may need to end killed processes
constexpr int kStopMs = 2'000;   // most commands end within this time after a stop is requested

/// The keeper's report. It is shorter than PIPE_BUF, so it arrives completely or not at all.
struct Report {
  enum Kind : int { kNotStarted, kEnded };
  int kind;
  int number;  // errno, or the status of waitpid()
};

struct ChildFds {
  int input, output, errors;
  int report;  // writing end
  int life;    // reading end; its end of file means that the command is to be killed
};

void report(int fd, Report::Kind kind, int number) {
  const Report r{kind, number};
  (void)!::write(fd, &r, sizeof r);
}

/// Runs in the command's process between fork and exec, so it makes only async-signal-safe calls,
/// as keep() does.
[[noreturn]] void become_command(char* const* argv, char* const* envp, const char* program,
                                 const ChildFds& fds) {
  if (prepare_child({fds.input, fds.output, fds.errors}) && close_on_exec_from(3)) {
    ::execve(program, argv, envp);
  }
  report(fds.report, Report::kNotStarted, errno);
  ::_exit(127);
}

/// Closes all other descriptors of the daemon: its pipes to other commands, sockets and locks would
/// otherwise stay open in the keeper.
void close_others(const ChildFds& fds) {
  std::array kept{fds.input, fds.output, fds.errors, fds.report, fds.life};
  std::sort(kept.begin(), kept.end());
  unsigned from = 0;
  for (const int fd : kept) {
    const auto number = static_cast<unsigned>(fd);
    if (number > from) (void)::syscall(SYS_close_range, from, number - 1, 0U);
    from = number + 1;
  }
  (void)::syscall(SYS_close_range, from, ~0U, 0U);
}

/// Returns the keeper process: starts the command, waits for its end or for `life` to be closed,
/// kills the rest of its process group, and reports.
[[noreturn]] void keep(char* const* argv, char* const* envp, const char* program,
                       const ChildFds& fds) {
  sigset_t all;  // signals are for the daemon, whose handlers are inherited
  sigfillset(&all);
  (void)::sigprocmask(SIG_SETMASK, &all, nullptr);
  close_others(fds);
  const pid_t command = ::_Fork();
  if (command == 0) become_command(argv, envp, program, fds);
  (void)::close(fds.input);
  (void)::close(fds.output);
  (void)::close(fds.errors);
  if (command < 0) {
    report(fds.report, Report::kNotStarted, errno);
    ::_exit(1);
  }
  (void)::setpgid(command, command);  // both processes call it, so the order does not matter
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, command, 0));
  pollfd entries[2] = {{pidfd, POLLIN, 0}, {fds.life, POLLIN, 0}};
  while (::poll(entries, 2, -1) < 0 && errno == EINTR) {
  }
  // Kill the group before reaping the command, since no other group can have its number until then.
  (void)::kill(-command, SIGKILL);
  (void)::kill(command, SIGKILL);
  int status = 0;
  while (::waitpid(command, &status, 0) < 0 && errno == EINTR) {
  }
  report(fds.report, Report::kEnded, status);
  ::_exit(0);
}

/// Returns the path of a program in PATH. If it is not found, returns a path that does not exist,
/// so that exec fails.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* value = std::getenv("PATH");
  std::string_view path = value != nullptr ? value : "/usr/local/bin:/usr/bin:/bin";
  while (!path.empty()) {
    const size_t end = path.find(':');
    const std::string_view folder = path.substr(0, end);
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
    // Skip relative folders, which would depend on where the daemon was started.
    if (folder.empty() || folder.front() != '/') continue;
    std::string candidate = std::string(folder) + '/' + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "/nonexistent/" + name;
}

int64_t now_ms() {
  using std::chrono::steady_clock;
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             steady_clock::now().time_since_epoch())
      .count();
}

/// The daemon's side: writes the command's input and reads its output until its keeper has
/// reported.
class Exchange {
 public:
  Exchange(const CommandRequest& request, UniqueFd in, UniqueFd out, UniqueFd errors,
           UniqueFd report)
      : request_(request),
        in_(std::move(in)),
        out_(std::move(out)),
        errors_(std::move(errors)),
        report_(std::move(report)),
        stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (const int fd : {in_.get(), out_.get(), errors_.get(), report_.get()}) {
      (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
    if (request_.input.empty()) in_.reset();
  }

  CommandAnswer run(UniqueFd life) {
    int64_t deadline = now_ms() + request_.timeout_ms;
    std::optional<End> killed;
    bool stops = false;
    const std::stop_callback asked(request_.stop, [fd = stop_.get()] {
      const uint64_t one = 1;
      (void)!::write(fd, &one, sizeof one);
    });
    while (report_) {
      if (!stops && request_.stop.stop_requested()) {
        stops = true;
        deadline = std::min(deadline, now_ms() + kStopMs);
      }
      const int64_t left = deadline - now_ms();
      if (left <= 0 && killed) break;  // the keeper itself has ended or hangs
      if (left <= 0 || (!killed && too_much_)) {
        killed = left > 0 ? End::kTooMuch : stops ? End::kStopped : End::kTimedOut;
        life.reset();
        deadline = now_ms() + kDrainMs;
        continue;
      }
      turn(static_cast<int>(left), stops);
    }
    // The command has ended. Read the output that is in the pipes, but do not wait for their end: a
    // process outside the command's group may keep them open.
    read_some(out_, answer_.output, request_.output_bytes_max);
    read_some(errors_, answer_.errors, request_.errors_bytes_max);
    if (!killed && too_much_) killed = End::kTooMuch;
    if (killed) answer_.end = *killed;
    return std::move(answer_);
  }

 private:
  void turn(int wait_ms, bool stops) {
    // poll() ignores negative descriptors.
    std::array<pollfd, 5> entries{pollfd{in_.get(), POLLOUT, 0}, pollfd{out_.get(), POLLIN, 0},
                                  pollfd{errors_.get(), POLLIN, 0},
                                  pollfd{report_.get(), POLLIN, 0},
                                  pollfd{stops ? -1 : stop_.get(), POLLIN, 0}};
    if (::poll(entries.data(), entries.size(), wait_ms) <= 0) return;
    if (entries[0].revents != 0) write_some();
    if (entries[1].revents != 0) read_some(out_, answer_.output, request_.output_bytes_max);
    if (entries[2].revents != 0) read_some(errors_, answer_.errors, request_.errors_bytes_max);
    if (entries[3].revents != 0) read_report();
  }

  void write_some() {
    // Block SIGPIPE, because another program that uses this library may not ignore it, as the
    // daemon does.
    sigset_t pipe_signal, before;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    (void)::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
    const std::string_view rest = std::string_view(request_.input).substr(written_);
    const ssize_t n = ::write(in_.get(), rest.data(), rest.size());
    if (n < 0 && errno == EPIPE && sigismember(&before, SIGPIPE) == 0) {
      const timespec at_once{};
      (void)::sigtimedwait(&pipe_signal, nullptr, &at_once);
    }
    const bool closed = n < 0 && errno != EAGAIN && errno != EINTR;
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (n > 0) written_ += static_cast<size_t>(n);
    if (closed || written_ == request_.input.size()) in_.reset();
  }

  void read_some(UniqueFd& fd, std::string& text, int64_t bytes_max) {
    std::array<char, 65536> buffer;
    // Read a limited number of times, so that run() checks the deadline in between.
    for (int turns = 0; fd && turns < 16; ++turns) {
      const ssize_t n = ::read(fd.get(), buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) return fd.reset();
      const size_t room = static_cast<size_t>(bytes_max) - text.size();
      text.append(buffer.data(), std::min(room, static_cast<size_t>(n)));
      if (static_cast<size_t>(n) <= room) continue;
      // A truncated output would be wrong, so it ends the command; of the errors the beginning
      // suffices.
      if (&text == &answer_.output) too_much_ = true;
      if (too_much_) return;
    }
  }

  void read_report() {
    Report r{};
    const ssize_t n = ::read(report_.get(), &r, sizeof r);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    report_.reset();
    if (n != sizeof r) return;  // the keeper was killed
    if (r.kind == Report::kNotStarted) {
      answer_.end = End::kNotStarted;
      answer_.number = r.number;
    } else {
      answer_.end = WIFSIGNALED(r.number) ? End::kSignalled : End::kExited;
      answer_.number = WIFSIGNALED(r.number) ? WTERMSIG(r.number) : WEXITSTATUS(r.number);
    }
  }

  const CommandRequest& request_;
  UniqueFd in_, out_, errors_, report_;
  const UniqueFd stop_;  // becomes readable when a stop is requested
  CommandAnswer answer_;
  size_t written_ = 0;
  bool too_much_ = false;
};

CommandAnswer not_started(int err) {
  CommandAnswer answer;
  answer.end = End::kNotStarted;
  answer.number = err;
  return answer;
}

}  // namespace

CommandAnswer run_command(const CommandRequest& request) {
  if (request.stop.stop_requested()) {
    CommandAnswer answer;
    answer.end = End::kStopped;
    return answer;
  }
  std::optional<Pipe> in = Pipe::make(), out = Pipe::make(), errors = Pipe::make();
  std::optional<Pipe> report = Pipe::make(), life = Pipe::make();
  if (!in || !out || !errors || !report || !life) return not_started(errno);

  const std::string program = find_program(request.program);
  std::vector<std::string> words{request.program};
  words.insert(words.end(), request.arguments.begin(), request.arguments.end());
  const std::vector<char*> argv = exec_array(words);
  const std::vector<char*> envp = exec_array(request.environment);
  const ChildFds fds{in->read.get(), out->write.get(), errors->write.get(), report->write.get(),
                     life->read.get()};
  const pid_t keeper = ::_Fork();
  if (keeper < 0) return not_started(errno);
  if (keeper == 0) keep(argv.data(), envp.data(), program.c_str(), fds);
  const UniqueFd keeper_fd(static_cast<int>(::syscall(SYS_pidfd_open, keeper, 0)));
  in->read.reset();
  out->write.reset();
  errors->write.reset();
  report->write.reset();
  life->read.reset();
  Exchange exchange(request, std::move(in->write), std::move(out->read), std::move(errors->read),
                    std::move(report->read));
  CommandAnswer answer = exchange.run(std::move(life->write));
  // The keeper has reported and is ending, or it is long past its deadline and must be killed.
  (void)::syscall(SYS_pidfd_send_signal, keeper_fd.get(), SIGKILL, nullptr, 0);
  while (::waitpid(keeper, nullptr, 0) < 0 && errno == EINTR) {
  }  // ECHILD: the daemon's supervisor has reaped it
  return answer;
}

std::string printable(std::string_view text, size_t bytes_max) {
  std::string out(text.substr(0, bytes_max));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

std::string describe(const CommandAnswer& answer) {
  std::string how;
  switch (answer.end) {
    case End::kExited:
      how = "exit status " + std::to_string(answer.number);
      break;
    case End::kSignalled:
      how = "signal " + std::to_string(answer.number);
      break;
    case End::kTimedOut:
      how = "no answer in time";
      break;
    case End::kTooMuch:
      how = "too much output";
      break;
    case End::kStopped:
      how = "killed, because the daemon is stopping";
      break;
    case End::kNotStarted:
      how = std::string("cannot be started: ") + std::strerror(answer.number);
      break;
    case End::kLost:
      how = "its exit status is unknown";
      break;
  }
  std::string_view errors = answer.errors;
  errors = errors.substr(0, errors.find('\n'));
  return errors.empty() ? how : how + ": " + printable(errors);
}

}  // namespace trainyard::server
