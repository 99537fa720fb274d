// Tests of contexts: where server, token and project come from, in which order, and how the
// configuration and tokens are written.
#include "client/lib/contexts.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

class ContextsTest : public testing::Test {
 protected:
  ContextsTest() {
    std::string folder = (fs::temp_directory_path() / "trainyard-contexts-XXXXXX").string();
    folder_ = ::mkdtemp(folder.data());
    vars_["XDG_CONFIG_HOME"] = folder_.string();
  }
  ~ContextsTest() override { fs::remove_all(folder_); }

  fs::path file() const { return folder_ / "trainyard/config.yaml"; }
  void config(const std::string& text) {
    fs::create_directories(file().parent_path());
    std::ofstream(file()) << text;
  }
  Environment env() const {
    return [this](const char* name) {
      const auto found = vars_.find(name);
      return found == vars_.end() ? std::string() : found->second;
    };
  }
  Connection resolve(const ConnectionFlags& flags = {}) {
    const auto connection = resolve_connection(flags, env());
    EXPECT_TRUE(connection.ok()) << connection.error().message;
    return connection.ok() ? *connection : Connection();
  }
  std::string refusal(const ConnectionFlags& flags = {}) {
    const auto connection = resolve_connection(flags, env());
    return connection.ok() ? "accepted" : connection.error().message;
  }

  fs::path folder_;
  std::map<std::string, std::string> vars_;
};

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

constexpr const char* kTwoContexts =
    "context: lab\ncontexts:\n"
    "  lab: {server: \"lab:7000\", token_file: tokens/lab, project: vision, ca_file: ca.pem}\n"
    "  home: {server: /s, project: speech}\n";

TEST_F(ContextsTest, OptionBeatsEnvironmentBeatsContextBeatsDefault) {
  EXPECT_EQ(resolve().project, "default");
  EXPECT_EQ(resolve().from.project, "default");
  EXPECT_EQ(resolve().from.server, "default");
  EXPECT_EQ(resolve().from.token, "");
  config(kTwoContexts);
  Connection got = resolve();
  EXPECT_EQ(got.project, "vision");
  EXPECT_EQ(got.parent(), "projects/vision");
  EXPECT_EQ(got.from.project, "context lab");
  EXPECT_EQ(got.from.server, "context lab");
  EXPECT_EQ(got.token_file, folder_ / "trainyard/tokens/lab");
  EXPECT_EQ(got.from.token, "context lab");
  vars_["TRAINYARD_PROJECT"] = "audio";
  vars_["TRAINYARD_TOKEN_FILE"] = "/tokens/env";
  got = resolve();
  EXPECT_EQ(got.project, "audio");
  EXPECT_EQ(got.from.project, "TRAINYARD_PROJECT");
  EXPECT_EQ(got.token_file, "/tokens/env");
  EXPECT_EQ(got.from.token, "TRAINYARD_TOKEN_FILE");
  vars_["TRAINYARD_TOKEN"] = "text-of-a-token";
  got = resolve();
  EXPECT_EQ(got.token, "text-of-a-token");
  EXPECT_EQ(got.token_file, "");
  EXPECT_EQ(got.from.token, "TRAINYARD_TOKEN");
  ConnectionFlags flags;
  flags.project = "projects/image";
  flags.token_file = "/tokens/option";
  got = resolve(flags);
  EXPECT_EQ(got.project, "image") << "a full name is one, too";
  EXPECT_EQ(got.from.project, "--project");
  EXPECT_EQ(got.token, "");
  EXPECT_EQ(got.token_file, "/tokens/option");
  EXPECT_EQ(got.from.token, "--token-file");
}

TEST_F(ContextsTest, AContextThatAnOptionNamesGoesBeforeTheEnvironment) {
  config(kTwoContexts);
  vars_["TRAINYARD_SERVER"] = "elsewhere:1";
  vars_["TRAINYARD_PROJECT"] = "audio";
  vars_["TRAINYARD_TOKEN"] = "text-of-a-token";
  ConnectionFlags flags;
  flags.context = "lab";
  const Connection got = resolve(flags);
  EXPECT_EQ(got.server, "lab:7000");
  EXPECT_EQ(got.project, "vision");
  EXPECT_EQ(got.token_file, folder_ / "trainyard/tokens/lab");
  EXPECT_EQ(got.token, "");
}

TEST_F(ContextsTest, ATokenGoesToNoOtherServer) {
  config(kTwoContexts);
  ConnectionFlags flags;
  flags.server = "attacker:7000";
  Connection got = resolve(flags);
  EXPECT_FALSE(got.has_token());
  EXPECT_EQ(got.ca_file, "");
  EXPECT_EQ(got.project, "default");
  EXPECT_EQ(got.context, "");
  flags.server = "";
  vars_["TRAINYARD_SERVER"] = "attacker:7000";
  EXPECT_FALSE(resolve(flags).has_token());
  vars_["TRAINYARD_SERVER"] = "lab:7000";
  got = resolve(flags);
  EXPECT_TRUE(got.has_token()) << "it is the context's server";
  EXPECT_EQ(got.from.server, "TRAINYARD_SERVER");
}

TEST_F(ContextsTest, WrongProjectsAndTokensAreNamed) {
  ConnectionFlags flags;
  flags.project = "Vision Lab";
  EXPECT_EQ(refusal(flags).find("--project: project 'Vision Lab', expected"), 0u) << refusal(flags);
  flags.project = "";
  vars_["TRAINYARD_PROJECT"] = "a/b";
  EXPECT_EQ(refusal(flags).find("TRAINYARD_PROJECT: project 'a/b'"), 0u) << refusal(flags);
  vars_.erase("TRAINYARD_PROJECT");
  vars_["TRAINYARD_TOKEN"] = "two words";
  EXPECT_EQ(refusal(flags).find("TRAINYARD_TOKEN contains no token"), 0u) << refusal(flags);
  vars_.erase("TRAINYARD_TOKEN");
  config("contexts: {lab: {project: NO}}\n");
  EXPECT_NE(refusal(flags).find("config.yaml:1:18: project: 'NO'"), std::string::npos)
      << refusal(flags);
}

TEST_F(ContextsTest, WhatIsWrittenIsReadAgain) {
  Contexts contexts;
  contexts.current = "lab";
  contexts.list = {{.name = "lab",
                    .server = "[::1]:7443",
                    .ca_file = "/etc/ca #1.pem",
                    .token_file = (folder_ / "trainyard/tokens/lab").string(),
                    .project = "vision"},
                   {.name = "null",
                    .server = "unix:/run/\"x\"",
                    .ca_file = "",
                    .token_file = "",
                    .project = "",
                    .plaintext = true},
                   {.name = "empty", .server = "", .ca_file = "", .token_file = "", .project = ""}};
  const fs::path path = *own_config_file({}, env());
  bool kept_old = true;
  ASSERT_TRUE(write_contexts(contexts, path, &kept_old).ok());
  EXPECT_FALSE(kept_old);
  const auto read = read_contexts({}, env());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->current, "lab");
  ASSERT_EQ(read->list.size(), contexts.list.size());
  for (size_t i = 0; i < contexts.list.size(); ++i) {
    EXPECT_EQ(read->list[i].name, contexts.list[i].name);
    EXPECT_EQ(read->list[i].server, contexts.list[i].server);
    EXPECT_EQ(read->list[i].ca_file, contexts.list[i].ca_file);
    EXPECT_EQ(read->list[i].token_file, contexts.list[i].token_file);
    EXPECT_EQ(read->list[i].project, contexts.list[i].project);
    EXPECT_EQ(read->list[i].plaintext, contexts.list[i].plaintext);
  }
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_NE(text.str().find("token_file: tokens/lab"), std::string::npos)
      << "the folder can be moved:\n"
      << text.str();
}

TEST_F(ContextsTest, CommentsOfPeopleAreKeptBeside) {
  config("# mine\ncontexts: {lab: {server: \"a:1\"}}\n");
  Contexts contexts = *read_contexts({}, env());
  contexts.current = "lab";
  bool kept_old = false;
  ASSERT_TRUE(write_contexts(contexts, *own_config_file({}, env()), &kept_old).ok());
  EXPECT_TRUE(kept_old);
  std::ifstream in(file().string() + ".old");
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "# mine");
  ASSERT_TRUE(write_contexts(contexts, *own_config_file({}, env()), &kept_old).ok());
  EXPECT_FALSE(kept_old) << "the comment of this program is none of people";
}

TEST_F(ContextsTest, AFileBehindALinkIsReplacedThere) {
  fs::create_directories(folder_ / "dotfiles");
  fs::create_directories(file().parent_path());
  std::ofstream(folder_ / "dotfiles/config.yaml") << "contexts: {}\n";
  fs::create_symlink(folder_ / "dotfiles/config.yaml", file());
  bool kept_old = false;
  ASSERT_TRUE(write_contexts(Contexts(), *own_config_file({}, env()), &kept_old).ok());
  EXPECT_TRUE(fs::is_symlink(file()));
}

TEST_F(ContextsTest, TokensAreForTheirOwnerAlone) {
  const mode_t before = ::umask(0);
  const fs::path token = token_file_of(file(), "lab");
  EXPECT_EQ(token, file().parent_path() / "tokens/lab");
  fs::create_directories(token.parent_path());
  ::chmod(token.parent_path().c_str(), 0755);
  std::ofstream(token.string() + ".tmp") << "of a write that was interrupted";
  ::chmod((token.string() + ".tmp").c_str(), 0644);
  std::ofstream(token) << "old";
  ::chmod(token.c_str(), 0644);
  EXPECT_TRUE(write_token(token, "secret").ok());
  ::umask(before);
  EXPECT_EQ(mode_of(token), 0600u);
  EXPECT_EQ(mode_of(token.parent_path()), 0700u);
  EXPECT_FALSE(fs::exists(token.string() + ".tmp"));
  EXPECT_EQ(*read_token(token), "secret");
}

TEST(ContextNames, AreFileNames) {
  for (const char* good : {"lab", "gpu1.example", "A_b-2"}) {
    EXPECT_TRUE(check_context_name(good).ok()) << good;
  }
  for (const char* bad : {"", "..", ".ssh", "a/b", "-x", "a b", "a\nb"}) {
    EXPECT_FALSE(check_context_name(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace trainyard::client
