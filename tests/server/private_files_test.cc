// Tests that the daemon refuses folders and secrets that other users could change or read. Another
// user who might write the state folder replaced `uploads` by a link, through which the daemon
// wrote.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/config/private_files.h"
#include "server/config/token.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

namespace fs = std::filesystem;

class PrivateFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.state_dir = root_.path() / "state";
    config_.socket = config_.state_dir / "trainyard.sock";
    fs::create_directories(config_.state_dir / "uploads");
    ::chmod(config_.state_dir.c_str(), 0755);
    ::chmod((config_.state_dir / "uploads").c_str(), 0700);
  }
  std::string refusal() const {
    const Status s = check_private_files(config_);
    return s.ok() ? "" : s.error().message;
  }
  /// Expects a refusal that names a command; the command makes it go away.
  void expect_mended_by(const std::string& command) const {
    const std::string message = refusal();
    ASSERT_TRUE(message.ends_with(": run " + command)) << message;
    ASSERT_EQ(std::system(command.c_str()), 0);
    EXPECT_EQ(refusal(), "");
  }
  fs::path write(const char* name, mode_t mode) const {
    const fs::path path = root_.path() / name;
    std::ofstream(path) << "0123456789abcdef-secret\n";
    ::chmod(path.c_str(), mode);
    return path;
  }

  TemporaryDirectory root_;
  Config config_;
};

TEST_F(PrivateFiles, AFolderThatOthersMayWriteIsRefused) {
  EXPECT_EQ(refusal(), "");
  const std::string state = config_.state_dir;
  ::chmod(state.c_str(), 0777);
  expect_mended_by("chmod go-w " + state);
  ::chmod((config_.state_dir / "uploads").c_str(), 0770);
  expect_mended_by("chmod go-w " + state + "/uploads");
  ::chmod(root_.path().c_str(), 0777);
  expect_mended_by("chmod o-w " + root_.path().string());
  ::chmod(root_.path().c_str(), 01777);
  EXPECT_EQ(refusal(), "") << "nobody may rename others' files there, as in /tmp";
  config_.state_dir = root_.path() / "later";
  EXPECT_EQ(refusal(), "") << "it is created at the start";
}

TEST_F(PrivateFiles, WhatOthersCannotReachMayHaveAnyMode) {
  ::chmod((config_.state_dir / "uploads").c_str(), 0777);
  ::chmod(config_.state_dir.c_str(), 0700);
  EXPECT_EQ(refusal(), "");
}

TEST_F(PrivateFiles, WhatBelongsToAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const std::string state = config_.state_dir;
  ASSERT_EQ(::chown(state.c_str(), 4711, 0), 0);
  expect_mended_by("chown -R root " + state);
  fs::create_symlink("/etc", config_.state_dir / "models");
  ASSERT_EQ(::lchown((state + "/models").c_str(), 4711, 0), 0);
  EXPECT_NE(refusal().find("belongs to the user 4711"), std::string::npos) << refusal();
  const fs::path token = write("token", 0600);
  ASSERT_EQ(::chown(token.c_str(), 4711, 0), 0);
  EXPECT_NE(Tokens::load(token).error().message.find("chown root " + token.string()),
            std::string::npos);
}

TEST_F(PrivateFiles, AKeyThatOthersMayReadIsRefused) {
  config_.tls_key = write("key", 0644);
  expect_mended_by("chmod o-rwx,g-w " + config_.tls_key.string());
  config_.tls_key = write("shared", 0640);
  EXPECT_EQ(refusal(), "") << "the group may be one for keys, as ssl-cert";
  const fs::path token = write("token", 0640);
  EXPECT_NE(Tokens::load(token).error().message.find("run chmod 600 " + token.string()),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard::server
