// Tests of the choice of the server: an option overrides the environment, which overrides the
// configuration file, which overrides the usual sockets. contexts_test.cc tests the other values.
#include "client/lib/connection.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "client/lib/names.h"
#include "client/lib/socket_access.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() {
    std::string folder = (fs::temp_directory_path() / "trainyard-connection-XXXXXX").string();
    folder_ = ::mkdtemp(folder.data());
    vars_["XDG_CONFIG_HOME"] = folder_.string();
    fs::create_directory(folder_ / "trainyard");
  }
  ~ConnectionTest() override { fs::remove_all(folder_); }
  void config(const std::string& text) { std::ofstream(folder_ / "trainyard/config.yaml") << text; }
  Result<Connection> resolve(const ConnectionFlags& flags = {}) {
    return resolve_connection(flags, [this](const char* name) {
      const auto found = vars_.find(name);
      return found == vars_.end() ? std::string() : found->second;
    });
  }
  std::string refusal(const ConnectionFlags& flags = {}) {
    const auto connection = resolve(flags);
    return connection.ok() ? "accepted" : connection.error().message;
  }
  fs::path folder_;
  std::map<std::string, std::string> vars_;
};

TEST_F(ConnectionTest, FlagBeatsEnvironmentBeatsFile) {
  config(
      "context: lab\ncontexts:\n  lab: {server: \"lab:7000\", ca_file: ca.pem}\n  "
      "home: {server: /s}\n");
  auto connection = resolve();
  ASSERT_TRUE(connection.ok()) << connection.error().message;
  EXPECT_EQ(connection->server, "lab:7000");
  EXPECT_EQ(connection->ca_file, folder_ / "trainyard/ca.pem")
      << "relative to the configuration file";
  EXPECT_FALSE(connection->plaintext);
  vars_["TRAINYARD_CONTEXT"] = "home";
  EXPECT_EQ(resolve()->server, "unix:/s");
  vars_["TRAINYARD_SERVER"] = "unix:/from/env";
  EXPECT_EQ(resolve()->server, "unix:/from/env");
  ConnectionFlags flags;
  flags.server = "unix:///from/flag";
  EXPECT_EQ(resolve(flags)->server, "unix:/from/flag");
}

TEST_F(ConnectionTest, WithoutSettingsTheDefaultSocketIsUsed) {
  vars_["HOME"] = folder_.string();
  const auto connection = resolve();
  ASSERT_TRUE(connection.ok());
  EXPECT_TRUE(connection->server.ends_with("/trainyard.sock")) << connection->server;
  EXPECT_TRUE(connection->is_unix());
}

TEST_F(ConnectionTest, TheServicesSocketIsAmongTheUsualOnes) {
  const std::vector<fs::path> sockets = default_sockets([](const char*) { return std::string(); });
  EXPECT_NE(std::ranges::find(sockets, "/run/trainyard/trainyard.sock"), sockets.end());
  ConnectionFlags flags;
  flags.server = "unix:/s";
  EXPECT_FALSE(resolve(flags)->is_default);
  EXPECT_TRUE(resolve()->is_default);
}

TEST(SocketAccess, WhoMayNotUseTheSocketIsToldWhoMayAndWhatMendsIt) {
  SocketAccess access{.path = "/run/s", .user = "ada", .owner = "trainyard", .group = "trainyard"};
  EXPECT_EQ(refuse_socket(access).message,
            "you are not in the group trainyard, which may use the server's socket /run/s; run: "
            "sudo usermod -aG trainyard ada, then log in again");
  access.listed = true;
  EXPECT_EQ(refuse_socket(access).message,
            "you are in the group trainyard, which may use the server's socket /run/s, but logged "
            "in before: log in again, or run: newgrp trainyard");
  access.group = "";
  EXPECT_EQ(refuse_socket(access).message,
            "the server's socket /run/s is for the user trainyard alone; its operator can open it "
            "for a group: setting 'socket_group'");
  access.owner = "";
  EXPECT_EQ(refuse_socket(access).message,
            "the folder of the server's socket /run/s is closed to you; its operator can serve "
            "elsewhere, for a group: settings 'socket' and 'socket_group'");
  EXPECT_EQ(refuse_socket(access).reason, "SOCKET_NOT_ALLOWED");
}

TEST_F(ConnectionTest, LoopbackNeedsNoTls) {
  ConnectionFlags flags;
  flags.server = "127.0.0.1:7000";
  EXPECT_TRUE(resolve(flags)->plaintext);
  flags.server = "gpu.example:7000";
  EXPECT_FALSE(resolve(flags)->plaintext);
  flags.plaintext = true;
  EXPECT_TRUE(resolve(flags)->plaintext);
}

TEST_F(ConnectionTest, WrongSettingsAreNamed) {
  ConnectionFlags flags;
  flags.server = "nonsense";
  EXPECT_EQ(refusal(flags), "server 'nonsense': expected unix:/path or host:port");
  flags.server = "http://localhost:7070";
  EXPECT_EQ(
      refusal(flags),
      "server 'http://localhost:7070': expected host:port without a scheme; TLS is used unless "
      "--plaintext is given");
  flags.server = "host:99999";
  EXPECT_NE(refusal(flags), "accepted");
  flags.server = "unix:" + std::string(200, 'x');
  EXPECT_NE(refusal(flags).find("107 bytes"), std::string::npos);
  flags.server = "unix:/s";
  flags.timeout_s = -1;
  EXPECT_NE(refusal(flags).find("--timeout"), std::string::npos);
  flags.timeout_s = 0;
  flags.context = "nope";
  EXPECT_NE(refusal(flags).find("there is no configuration file"), std::string::npos);
  config("contexts: {lab: {server: \"a:1\"}}\n");
  EXPECT_NE(refusal(flags).find("which has lab"), std::string::npos);
  config("contexts: {nope: {sever: \"a:1\"}}\n");
  EXPECT_NE(refusal(flags).find("config.yaml:1:19: unknown key or bad value: 'sever'"),
            std::string::npos)
      << refusal(flags);
  config("contexst: {}\n");
  EXPECT_NE(refusal(flags).find("config.yaml:1:1"), std::string::npos);
  vars_["TRAINYARD_CONFIG"] = "/nowhere/config.yaml";
  EXPECT_NE(refusal(flags), "accepted") << "a file that was named must be there";
}

TEST_F(ConnectionTest, ATokenThatOthersCanReadIsRefused) {
  const fs::path path = folder_ / "token";
  std::ofstream(path) << "secret-token-1\n";
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(*read_token(path), "secret-token-1");
  fs::permissions(path, fs::perms::group_read, fs::perm_options::add);
  const auto open = read_token(path);
  ASSERT_FALSE(open.ok());
  EXPECT_NE(open.error().message.find("chmod 600"), std::string::npos);
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  std::ofstream(path) << "two words\n";
  EXPECT_FALSE(read_token(path).ok());
  EXPECT_FALSE(read_token(folder_ / "none").ok());
}

TEST(Names, LastSegmentAndFullNameAreTheSame) {
  EXPECT_EQ(*full_name("jobs", "digits-1", "projects/default"), "projects/default/jobs/digits-1");
  EXPECT_EQ(*full_name("jobs", "projects/other/jobs/x", "projects/vision"),
            "projects/other/jobs/x");
  EXPECT_EQ(*full_name("models", "projects/default/jobs/x", "projects/vision"),
            "projects/default/models/x")
      << "a trained model has its job's name";
  EXPECT_EQ(*full_name("jobs", "x", "projects/vision"), "projects/vision/jobs/x");
  EXPECT_EQ(short_name("projects/default/jobs/digits-1"), "digits-1");
  EXPECT_EQ(parent_of("projects/vision/jobs/x"), "projects/vision");
  EXPECT_EQ(parent_of("projects/vision"), "");
  EXPECT_EQ(parent_of("devices/gpu-0"), "");
  for (const char* bad :
       {"", "jobs/x", "projects/a/models/x", "projects/a/jobs/", "projects/a/jobs/x/y", "/"}) {
    const auto name = full_name("jobs", bad, "projects/default");
    ASSERT_FALSE(name.ok()) << bad;
    EXPECT_EQ(name.error().reason, "NAME_MALFORMED");
  }
}

TEST(Names, UuidsAreDifferentAndWellFormed) {
  const std::string uuid = make_uuid();
  ASSERT_EQ(uuid.size(), 36u);
  EXPECT_EQ(uuid[14], '4');
  EXPECT_NE(std::string("89ab").find(uuid[19]), std::string::npos);
  EXPECT_NE(uuid, make_uuid());
}

}  // namespace
}  // namespace trainyard::client
