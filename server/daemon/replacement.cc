#include "server/daemon/replacement.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "server/processes/process.h"
#include "src/base/handle.h"
#include "src/base/stop.h"

extern char** environ;

namespace trainyard::server {
namespace {

constexpr size_t kOutputBytesMax = 1 << 20;

Error unusable(const std::string& why) {
  return make_error(ErrorCode::kFailedPrecondition, "PROGRAM_NOT_USABLE", why);
}

/// Appends what the process has written; false once there is no more to come.
bool read_output(int fd, std::string& text) {
  std::array<char, 4096> chunk;
  for (;;) {
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (text.size() < kOutputBytesMax) text.append(chunk.data(), static_cast<size_t>(n));
  }
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

/// Returns whether the program's end and output are those of a trainyardd that accepts the
/// arguments.
Status judge(const ExitStatus& status, const std::string& output, const std::string& line) {
  if (!status.unknown && (status.signalled || status.number != 0)) {
    return unusable("it does not accept this daemon's settings: " + describe(status));
  }
  if (!has_line(output, line)) {
    return unusable("it is not a trainyardd: asked for its settings, it does not print '" + line +
                    "'");
  }
  return {};
}

}  // namespace

Status try_replacement(const ReplacementTrial& trial) {
  SpawnRequest request{.program = trial.program, .arguments = trial.arguments, .environment = {}};
  request.arguments.emplace_back("--print-config");
  for (char** variable = environ; *variable != nullptr; ++variable) {
    request.environment.emplace_back(*variable);
  }
  Result<Process> process = Process::spawn(request);
  if (!process.ok()) return unusable("it cannot be run: " + process.error().message);
  const UniqueFd signals(::signalfd(-1, &trial.interrupts, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return unusable(std::string("signalfd: ") + std::strerror(errno));
  const auto end = std::chrono::steady_clock::now() + trial.time_max;
  std::string output;
  std::array<pollfd, 3> polled{
      {{process->pidfd(), POLLIN, 0}, {signals.get(), POLLIN, 0}, {process->output(), POLLIN, 0}}};
  Status result;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      result = unusable("it had not printed its settings after " +
                        std::to_string(trial.time_max.count()) + " ms");
      break;
    }
    (void)::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    if (polled[1].revents != 0) {
      result = make_error(ErrorCode::kCancelled, kStopped, "the daemon is to stop");
      break;
    }
    if (polled[2].revents != 0 && !read_output(process->output(), output)) polled[2].fd = -1;
    if (polled[0].revents == 0) continue;
    if (polled[2].fd >= 0) (void)read_output(process->output(), output);
    result = judge(process->reap().value_or(ExitStatus{.unknown = true}), output, trial.line);
    break;
  }
  process->signal_group(SIGKILL);
  if (polled[0].revents == 0) {  // reap it, so that no zombie is left
    (void)::poll(polled.data(), 1, static_cast<int>(trial.time_max.count()));
    (void)process->reap();
  }
  return result;
}

}  // namespace trainyard::server
