// Tests of child processes: a clean start, a noticed end, the end of all descendants, and a bound
// on output.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>

#include "server/processes/output_log.h"
#include "server/processes/process.h"
#include "src/base/files.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

const int kPatienceMs = static_cast<int>(std::chrono::milliseconds(patience()).count());

Process spawn_shell(const std::string& script) {
  Result<Process> process = Process::spawn({"/bin/sh", {"-c", script}, {"PATH=/bin:/usr/bin"}});
  EXPECT_TRUE(process.ok()) << process.error().message;
  return std::move(process).value();
}

ExitStatus wait_for_end(Process& process) {
  pollfd entry{process.pidfd(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, kPatienceMs), 1) << "the process did not end";
  const std::optional<ExitStatus> status = process.reap();
  EXPECT_TRUE(status.has_value());
  return status.value_or(ExitStatus{});
}

std::string read_all(Process& process) {
  std::string text;
  char chunk[4096];
  for (;;) {
    pollfd entry{process.output(), POLLIN, 0};
    if (::poll(&entry, 1, kPatienceMs) != 1) return text;
    const ssize_t n = ::read(process.output(), chunk, sizeof chunk);
    if (n <= 0) return text;
    text.append(chunk, static_cast<size_t>(n));
  }
}

TEST(ServiceProcess, GetsItsSecretOnStdinAndInheritsNothingElse) {
  const int leaked = ::open("/dev/null", O_RDONLY);  // no O_CLOEXEC, as a library may do
  Process process = spawn_shell("read nonce; echo got $nonce; env; ls -1 /proc/self/fd | wc -l");
  ASSERT_TRUE(process.write_stdin("secret\n").ok());
  const std::string output = read_all(process);
  ::close(leaked);
  EXPECT_EQ(wait_for_end(process).number, 0);
  EXPECT_NE(output.find("got secret"), std::string::npos) << output;
  EXPECT_EQ(output.find("HOME="), std::string::npos) << output;
  EXPECT_NE(output.find("\n4\n"), std::string::npos) << "0, 1, 2 and ls's own\n" << output;
}

TEST(ServiceProcess, ReportsExitCodesAndSignals) {
  Process exits = spawn_shell("exit 7");
  const ExitStatus code = wait_for_end(exits);
  EXPECT_FALSE(code.signalled);
  EXPECT_EQ(describe(code), "exit code 7");
  Process killed = spawn_shell("kill -SEGV $$");
  const ExitStatus signal = wait_for_end(killed);
  EXPECT_TRUE(signal.signalled);
  EXPECT_EQ(signal.number, SIGSEGV);
}

TEST(ServiceProcess, AMissingProgramIsAnErrorAndStartsNoProcess) {
  const Result<Process> process = Process::spawn({"/nowhere/worker", {}, {}});
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.error().reason, "WORKER_START_FAILED");
  EXPECT_NE(process.error().message.find("worker: No such file"), std::string::npos);
  EXPECT_EQ(process.error().message.find("/nowhere"), std::string::npos) << "a server's path";
}

TEST(ServiceProcess, ItsProcessGroupEndsWithIt) {
  Process process = spawn_shell("sleep 1000 & echo $!; wait");
  char text[32] = {};
  pollfd entry{process.output(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, kPatienceMs), 1);
  ASSERT_GT(::read(process.output(), text, sizeof text - 1), 0);
  const pid_t child = std::stoi(text);
  process.signal_group(SIGKILL);
  EXPECT_EQ(wait_for_end(process).number, SIGKILL);
  EXPECT_TRUE(eventually([&] {
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    const std::string content((std::istreambuf_iterator<char>(stat)), {});
    // A zombie is dead; its new parent will reap it.
    return process_start_time(child) == 0 || content.find(") Z") != std::string::npos;
  }));
}

TEST(ServiceProcess, AProcessIsAdoptedOnlyIfItIsTheSame) {
  SpawnRequest request;
  request.program = "/bin/sh";
  request.arguments = {"-c", "sleep 1000"};
  request.environment = {"PATH=/usr/bin:/bin", "TRAINYARD_TASK=job-1"};
  request.outlives = true;
  Process process = Process::spawn(request).value();
  const pid_t pid = process.pid();
  const int64_t start = process.start_time();
  EXPECT_FALSE(Process::adopt(pid, start + 1, "TRAINYARD_TASK=job-1")) << "that pid's next process";
  EXPECT_FALSE(Process::adopt(pid, start, "TRAINYARD_TASK=job-11"));
  EXPECT_FALSE(Process::adopt(pid, start, "TRAINYARD_TASK=job-")) << "the whole value counts";
  EXPECT_FALSE(Process::adopt(0, 0, "TRAINYARD_TASK=job-1")) << "it had no process yet";
  EXPECT_FALSE(process.reap().has_value()) << "and whoever it is lives on";
  EXPECT_TRUE(Process::adopt(pid, start, "TRAINYARD_TASK=job-1"));
  process.signal_group(SIGKILL);
  EXPECT_EQ(wait_for_end(process).number, SIGKILL);
  EXPECT_FALSE(Process::adopt(pid, start, "TRAINYARD_TASK=job-1"));
}

TEST(ServiceProcess, OutputWithoutAReaderIsKeptForTheNextReader) {
  SpawnRequest request;
  request.program = "/bin/sh";
  request.arguments = {"-c", "trap '' PIPE; read line; echo alone; while :; do echo more; done"};
  request.environment = {"PATH=/usr/bin:/bin", "TRAINYARD_TASK=job-2"};
  request.outlives = true;
  Process first = Process::spawn(request).value();
  ASSERT_TRUE(first.write_stdin("go\n").ok());
  const pid_t pid = first.pid();
  const int64_t start = first.start_time();
  { const Process gone = std::move(first); }  // no reader is left, as after the death of the daemon
  std::optional<Process> next = Process::adopt(pid, start, "TRAINYARD_TASK=job-2");
  ASSERT_TRUE(next.has_value());
  ASSERT_GE(next->output(), 0);
  pollfd entry{next->output(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, kPatienceMs), 1);
  char text[16] = {};
  ASSERT_GT(::read(next->output(), text, 6), 0);
  EXPECT_STREQ(text, "alone\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(next->reap().has_value()) << "a full pipe neither blocks nor ends it";
  next->signal_group(SIGKILL);
  EXPECT_EQ(wait_for_end(*next).number, SIGKILL) << "its parent is still this process";
}

TEST(ServiceProcess, F36AFloodOfOutputIsBoundedAndNeverBlocks) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("output-" + std::to_string(::getpid()) + ".log");
  OutputLog log(path);
  Process process = spawn_shell("head -c 20000000 /dev/zero | tr '\\0' 'x'; echo the last words");
  for (bool open = true; open;) {
    pollfd entry{process.output(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, kPatienceMs), 1);
    open = log.drain(process.output());
  }
  EXPECT_EQ(wait_for_end(process).number, 0);
  EXPECT_EQ(log.bytes(), 20'000'000 + 15);
  EXPECT_NE(log.tail().find("the last words"), std::string::npos);
  const std::filesystem::path older = path.string() + ".1";
  EXPECT_LE(std::filesystem::file_size(path) + std::filesystem::file_size(older),
            2 * static_cast<uintmax_t>(OutputLog::kFileBytesMax) + 100);
  EXPECT_NE(read_file(path, 1 << 21)->find("dropped"), std::string::npos);
  std::filesystem::remove(path);
  std::filesystem::remove(older);
}

}  // namespace
}  // namespace trainyard::server
