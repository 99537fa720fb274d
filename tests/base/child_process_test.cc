// Tests of programs that are started and waited for: their environment, and the reports when they
// end or cannot be started.
#include "src/base/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace trainyard {
namespace {

ProgramRun shell(const std::string& script) {
  return {.path = "/bin/sh", .arguments = {"sh", "-c", script}};
}

/// Reads the pipe until all its writers have closed it.
std::string read_all(const UniqueFd& fd) {
  std::string text(4096, '\0');
  size_t at = 0;
  for (ssize_t n; (n = ::read(fd.get(), text.data() + at, text.size() - at)) > 0;) {
    at += static_cast<size_t>(n);
  }
  return text.substr(0, at);
}

TEST(RunProgram, ReturnsTheStatusOfAnExitAndOfASignal) {
  const std::optional<int> exited = run_program(shell("exit 7"));
  ASSERT_TRUE(exited && WIFEXITED(*exited));
  EXPECT_EQ(WEXITSTATUS(*exited), 7);
  const std::optional<int> killed = run_program(shell("kill -9 $$"));
  ASSERT_TRUE(killed && WIFSIGNALED(*killed));
  EXPECT_EQ(WTERMSIG(*killed), SIGKILL);
}

TEST(RunProgram, ReportsAProgramThatDoesNotExist) {
  EXPECT_FALSE(run_program({.path = "/nonexistent/program", .arguments = {"program"}}));
  EXPECT_EQ(errno, ENOENT);
}

TEST(RunProgram, ConnectsTheGivenDescriptors) {
  std::optional<Pipe> in = Pipe::make(), out = Pipe::make();
  ASSERT_TRUE(in && out);
  ASSERT_EQ(::write(in->write.get(), "one\n", 4), 4);
  in->write.reset();
  ProgramRun run = shell("cat; echo two >&2");
  run.fds = {in->read.get(), out->write.get(), out->write.get()};
  const std::optional<int> status = run_program(run);
  ASSERT_EQ(status, 0);
  out->write.reset();
  EXPECT_EQ(read_all(out->read), "one\ntwo\n");
}

/// Returns the signals that a program ignores or blocks, in hexadecimal, as /proc/self/status shows
/// them.
std::string signals_of(ProgramRun run) {
  std::optional<Pipe> out = Pipe::make();
  if (!out) return "no pipe";
  run.fds.output = out->write.get();
  const std::optional<int> status = run_program(run);
  out->write.reset();
  return status == 0 ? read_all(out->read) : "failed";
}

TEST(RunProgram, ResetsSignalsToTheirDefaults) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ASSERT_EQ(::sigprocmask(SIG_BLOCK, &blocked, &before), 0);
  const auto pipe_before = ::signal(SIGPIPE, SIG_IGN);
  const std::string signals = signals_of(
      {.path = "/bin/grep", .arguments = {"grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"}});
  ::signal(SIGPIPE, pipe_before);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  const auto bits = [&](const std::string& name) {
    return std::stoull(signals.substr(signals.find(name) + name.size()), nullptr, 16);
  };
  EXPECT_EQ(bits("SigBlk:") & (1U << (SIGTERM - 1)), 0U) << signals;
  EXPECT_EQ(bits("SigIgn:") & (1U << (SIGPIPE - 1)), 0U) << signals;
}

TEST(RunProgram, ShieldsTheProgramFromInterruptsOnRequest) {
  ProgramRun run = shell("kill -INT $$; exit 3");
  run.ignores_interrupts = true;
  const std::optional<int> status = run_program(run);
  ASSERT_TRUE(status && WIFEXITED(*status)) << *status;
  EXPECT_EQ(WEXITSTATUS(*status), 3);
  run.ignores_interrupts = false;
  const std::optional<int> interrupted = run_program(run);
  ASSERT_TRUE(interrupted && WIFSIGNALED(*interrupted)) << *interrupted;
  EXPECT_EQ(WTERMSIG(*interrupted), SIGINT);
}

}  // namespace
}  // namespace trainyard
