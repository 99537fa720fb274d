// Tests of the trial before the daemon is replaced in place. A program that hangs made the daemon
// deaf to SIGTERM, and one that accepts everything ended it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "server/daemon/replacement.h"
#include "src/base/stop.h"
#include "tests/server/store_support.h"
#include "tests/support/patience.h"

namespace trainyard::server {
namespace {

class DaemonReplacement : public ::testing::Test {
 protected:
  void SetUp() override {
    sigemptyset(&trial_.interrupts);
    sigaddset(&trial_.interrupts, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &trial_.interrupts, nullptr);
    trial_.program = folder_.path() / "program";
    trial_.arguments = {"--state-dir", "here"};
    trial_.line = "state_dir: here";
    trial_.time_max = patience();
  }
  Status try_script(const std::string& script) {
    std::ofstream(trial_.program) << "#!/bin/sh\n" << script << "\n";
    ::chmod(trial_.program.c_str(), 0700);
    return try_replacement(trial_);
  }

  TemporaryDirectory folder_;
  ReplacementTrial trial_{};
};

TEST_F(DaemonReplacement, AProgramThatPrintsTheSettingsIsAccepted) {
  const Status s = try_script(
      "test \"$*\" = '--state-dir here --print-config' && "
      "echo 'socket: s' && echo 'state_dir: here'");
  EXPECT_TRUE(s.ok()) << s.error().message;
}

TEST_F(DaemonReplacement, OneThatRefusesOrAcceptsEverythingIsNot) {
  EXPECT_NE(try_script("exit 2").error().message.find("exit code 2"), std::string::npos);
  EXPECT_NE(try_script("exit 0").error().message.find("not a trainyardd"), std::string::npos);
  EXPECT_NE(try_script("echo 'state_dir: here and there'").error().message.find("not a trainyardd"),
            std::string::npos);
  std::filesystem::remove(trial_.program);
  EXPECT_NE(try_replacement(trial_).error().message.find("cannot be run"), std::string::npos);
}

TEST_F(DaemonReplacement, OneThatHangsIsGivenUpAndKilled) {
  trial_.time_max = std::chrono::milliseconds(200);
  const std::string pid_file = folder_.path() / "pid";
  const Status s = try_script("echo $$ > " + pid_file + "; exec sleep 300");
  EXPECT_NE(s.error().message.find("after 200 ms"), std::string::npos) << s.error().message;
  pid_t pid = 0;
  if (std::ifstream(pid_file) >> pid) {
    EXPECT_EQ(::kill(pid, 0), -1);
  }
}

TEST_F(DaemonReplacement, ASignalEndsTheTrialAndStaysPending) {
  ::raise(SIGUSR1);
  EXPECT_EQ(try_script("exec sleep 300").error().reason, kStopped);
  int signal = 0;
  ASSERT_EQ(::sigwait(&trial_.interrupts, &signal), 0);
  EXPECT_EQ(signal, SIGUSR1);
}

}  // namespace
}  // namespace trainyard::server
