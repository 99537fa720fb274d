// Tests with commands that misbehave: each call returns in time, reports how the command ended, and
// leaves no process behind.
#include "server/cluster/command.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>
#include <vector>

#include "tests/server/placement_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

using End = CommandAnswer::End;

class Command : public ::testing::Test {
 protected:
  CommandAnswer run(std::string_view body, int64_t timeout_ms = 20'000, std::string input = {}) {
    CommandRequest request;
    request.program = folder_.write("command", body);
    request.environment = {"PATH=/usr/bin:/bin", "MARK=of the request"};
    request.input = std::move(input);
    request.timeout_ms = timeout_ms;
    return run_command(request);
  }
  /// Waits for the end of the process whose PID a script has written to `name`.
  void expect_ended(const std::string& name) {
    const pid_t pid = std::stoi(folder_.read(name));
    EXPECT_TRUE(eventually([&] {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      const std::string text((std::istreambuf_iterator<char>(stat)), {});
      // A zombie counts as ended; its parent reaps it.
      return ::kill(pid, 0) != 0 || text.find(") Z") != std::string::npos;
    })) << "process "
        << pid << " of " << name << " is still there";
  }

  CommandFolder folder_;
};

TEST_F(Command, ReturnsOutputAndStatus) {
  const CommandAnswer answer = run("cat; echo complaint >&2; exit 7", 20'000, "a question");
  EXPECT_EQ(answer.end, End::kExited);
  EXPECT_EQ(answer.number, 7);
  EXPECT_EQ(answer.output, "a question");
  EXPECT_EQ(answer.errors, "complaint\n");
  EXPECT_EQ(describe(answer), "exit status 7: complaint");
}

TEST_F(Command, InheritsNoEnvironmentAndNoDescriptors) {
  ::setenv("TRAINYARD_TEST_LEAK", "1", 1);
  const int leak = ::open("/dev/null", O_RDONLY);  // inheritable: no O_CLOEXEC
  const CommandAnswer answer = run("env; ls /proc/$$/fd");
  ::close(leak);
  ::unsetenv("TRAINYARD_TEST_LEAK");
  EXPECT_NE(answer.output.find("MARK=of the request"), std::string::npos);
  EXPECT_EQ(answer.output.find("TRAINYARD_TEST_LEAK"), std::string::npos);
  const std::string fds = answer.output.substr(answer.output.find("\n0\n") + 1);
  // Descriptor 10 or 255 is the shell's own, for the script file.
  EXPECT_TRUE(fds == "0\n1\n2\n" || fds == "0\n1\n10\n2\n" || fds == "0\n1\n2\n255\n") << fds;
}

TEST_F(Command, IsKilledAtItsDeadlineWithItsChildren) {
  const auto began = std::chrono::steady_clock::now();
  const CommandAnswer answer =
      run("trap '' TERM; sleep 3600 & echo $! >$folder/child; echo $$ >$folder/self; wait",
          promised(std::chrono::milliseconds(300)).count());
  EXPECT_EQ(answer.end, End::kTimedOut);
  EXPECT_LT(std::chrono::steady_clock::now() - began, patience());
  expect_ended("child");
  expect_ended("self");
}

// Fails if a stopping daemon waits for a cluster that does not respond.
TEST_F(Command, HasTwoSecondsToEndAfterAStop) {
  std::stop_source stop;
  CommandRequest request;
  request.environment = {"PATH=/usr/bin:/bin"};
  const auto stopped = [&](std::string_view body) {
    stop = std::stop_source();
    request.stop = stop.get_token();
    std::filesystem::remove(folder_.path() / "self");
    request.program = folder_.write("command", body);
    std::jthread asks([&] {
      while (folder_.read("self").empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      stop.request_stop();
    });
    return run_command(request);
  };
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(stopped("echo $$ >$folder/self; exec sleep 3600").end, End::kStopped);
  EXPECT_LT(std::chrono::steady_clock::now() - began, patience());
  expect_ended("self");
  EXPECT_EQ(stopped("echo $$ >$folder/self; sleep 0.2; echo an answer").output, "an answer\n")
      << "most have one by then";

  folder_.write("command", "echo $$ >$folder/started");
  EXPECT_EQ(run_command(request).end, End::kStopped) << "none is started any more";
  EXPECT_EQ(folder_.read("started"), "");
}

TEST_F(Command, LeavesNoOrphanedChildren) {
  // The grandchild keeps the pipes open, so that reading to end of file would take an hour.
  const auto began = std::chrono::steady_clock::now();
  const CommandAnswer answer = run("sleep 3600 & echo $! >$folder/child; echo done");
  EXPECT_TRUE(answer.succeeded());
  EXPECT_EQ(answer.output, "done\n");
  EXPECT_LT(std::chrono::steady_clock::now() - began, patience());
  expect_ended("child");
}

TEST_F(Command, IsKilledWhenItPrintsWithoutEnd) {
  const CommandAnswer answer = run("echo $$ >$folder/self; exec yes");
  EXPECT_EQ(answer.end, End::kTooMuch);
  EXPECT_EQ(answer.output.size(), 8u << 20);
  expect_ended("self");
}

TEST_F(Command, KeepsTheFirstErrorOutputAndItsDeadline) {
  const CommandAnswer answer = run("exec yes >&2", 500);
  EXPECT_EQ(answer.end, End::kTimedOut);
  EXPECT_EQ(answer.errors.size(), 64u << 10);
  EXPECT_EQ(answer.output, "");
}

TEST_F(Command, AcceptsLargeInputAlsoIfItIsNotRead) {
  const std::string much(3 << 20, 'x');
  EXPECT_EQ(run("wc -c", 20'000, much).output, std::to_string(much.size()) + "\n");
  EXPECT_TRUE(run("exec <&-; exit 0", 20'000, much).succeeded());
}

TEST_F(Command, SaysWhenItWasKilledOrCouldNotBeStarted) {
  const CommandAnswer killed = run("kill -9 $$");
  EXPECT_EQ(killed.end, End::kSignalled);
  EXPECT_EQ(killed.number, 9);
  CommandRequest request;
  for (const char* program : {"/nonexistent/sbatch", "no-such-command-anywhere", "/etc/passwd"}) {
    request.program = program;
    const CommandAnswer answer = run_command(request);
    EXPECT_EQ(answer.end, End::kNotStarted) << program;
    EXPECT_EQ(answer.number, program == std::string("/etc/passwd") ? EACCES : ENOENT) << program;
  }
}

TEST_F(Command, EscapesBytesThatAreNotText) {
  const CommandAnswer answer = run("printf '\\377\\033[31m\\000red\\n' >&2; exit 1");
  EXPECT_EQ(describe(answer), "exit status 1: ??[31m?red");
}

TEST_F(Command, KeepsItsStatusWhenAnotherThreadReapsAllChildren) {
  // The reaper below reaps any ended child, as the daemon's supervisor does. None of the 200 exit
  // statuses may be lost.
  std::atomic<bool> done = false;
  std::thread reaper([&] {
    while (!done) {
      (void)::waitpid(-1, nullptr, WNOHANG);
      std::this_thread::yield();
    }
  });
  folder_.write("command", "exit 9");
  CommandRequest request;
  request.program = folder_.path() / "command";
  for (int i = 0; i < 200; ++i) {
    const CommandAnswer answer = run_command(request);
    ASSERT_EQ(answer.end, End::kExited);
    ASSERT_EQ(answer.number, 9);
  }
  done = true;
  reaper.join();
}

TEST_F(Command, RunsInSeveralThreadsWithoutWaitingForEachOther) {
  // If a command inherited the pipes of another one, the other one's end would be seen seconds
  // late.
  folder_.write("slow", "until [ -e $folder/go ]; do sleep 0.1; done");
  CommandRequest slow;
  slow.program = folder_.path() / "slow";
  slow.environment = {"PATH=/usr/bin:/bin"};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { (void)run_command(slow); });
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 16; ++i) {  // so often that such delays would add up to a minute
    EXPECT_EQ(run("exec sleep 60", 100).end, End::kTimedOut);
    EXPECT_EQ(run("cat", 20'000, "text").output, "text");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, promised(std::chrono::milliseconds(5'500)));
  folder_.write("go", "");
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace trainyard::server
