// Tests of login, contexts, people, projects, tokens and shares on the command line, by the real
// program against the fake server.
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "src/base/token_text.h"
#include "tests/client/cli_fixture.h"

namespace trainyard::client {
namespace {

namespace fs = std::filesystem;

const std::string kToken = token_text("0123456789abcdefghijklmnopqrstuvwxyzABCDEF");

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class People : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    server_.state().token_text = kToken;
    server_.state().token_name = "laptop";
  }
  /// Runs a command without TRAINYARD_SERVER, so that contexts decide.
  Done run_plain(const std::vector<std::string>& arguments, const std::string& input = "") {
    environment_.emplace_back("TRAINYARD_SERVER=");
    const Done done = run(arguments, input);
    environment_.pop_back();
    return done;
  }
  Done login(const std::string& input, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"login", "--token-stdin", "--server", server_.address()});
    return run_plain(more, input);
  }
  fs::path config() const { return server_.folder() / ".config/trainyard/config.yaml"; }
  fs::path token_file(const std::string& context) const {
    return server_.folder() / ".config/trainyard/tokens" / context;
  }
  std::string last_call() {
    const std::scoped_lock lock(server_.state().mu);
    return server_.state().people_calls.empty() ? "" : server_.state().people_calls.back();
  }
};

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

TEST_F(People, LoginKeepsTheTokenAndShowsItNever) {
  const Done done = login(kToken + "\n", {"--context", "lab", "--project", "vision"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, "logged in to " + server_.address() + " as ada; the context is lab\n");
  EXPECT_FALSE(contains(done.out + done.err, kToken));
  EXPECT_EQ(slurp(token_file("lab")), kToken + "\n");
  EXPECT_EQ(mode_of(token_file("lab")), 0600u);
  EXPECT_EQ(mode_of(token_file("lab").parent_path()), 0700u);
  EXPECT_FALSE(contains(slurp(config()), kToken));
  add_job(server_.state(), "digits-1", v1::QUEUED, 0);
  run_plain({"get", "projects/default/jobs/digits-1"});
  EXPECT_EQ(server_.state().authorizations.back(), "Bearer " + kToken);
  for (const char* format : {"table", "json"}) {
    const Done me = run_plain({"whoami", "-o", format});
    EXPECT_EQ(me.code, 0) << me.err;
    EXPECT_TRUE(contains(me.out, "ada")) << me.out;
    EXPECT_TRUE(contains(me.out, "context lab")) << me.out;
    EXPECT_FALSE(contains(me.out + me.err, kToken));
    EXPECT_FALSE(contains(run_plain({"context", "show", "-o", format}).out, kToken));
    EXPECT_FALSE(contains(run_plain({"context", "list", "-o", format}).out, kToken));
  }
}

TEST_F(People, LoginRefusesAMistypedTokenBeforeItAsksTheServer) {
  std::string wrong = kToken;
  std::swap(wrong[10], wrong[11]);
  for (const std::string& text : {wrong, kToken.substr(0, 40), std::string("short"),
                                  std::string("two words of a token"), std::string()}) {
    const Done done = login(text + "\n");
    EXPECT_EQ(done.code, 2) << text;
    EXPECT_TRUE(contains(done.err, "[TOKEN_MALFORMED]")) << done.err;
    EXPECT_TRUE(contains(done.err, "it was not sent")) << done.err;
    EXPECT_TRUE(text.empty() || !contains(done.err, text)) << done.err;
  }
  EXPECT_TRUE(server_.state().people_calls.empty());
  EXPECT_FALSE(fs::exists(config()));
}

TEST_F(People, LoginKeepsNothingIfTheServerRefuses) {
  server_.state().token_text = "another-token-text";
  const Done done = login(kToken);
  EXPECT_EQ(done.code, 3);
  EXPECT_TRUE(contains(done.err, "[CREDENTIALS_INVALID]")) << done.err;
  EXPECT_FALSE(fs::exists(config()));
  EXPECT_FALSE(fs::exists(token_file("local")));
}

TEST_F(People, LoginWithoutATerminalSaysHow) {
  const Done done = run({"login"});
  EXPECT_EQ(done.code, 2);
  EXPECT_TRUE(contains(done.err, "--token-stdin")) << done.err;
}

/// Runs `trainyard login` on a pseudo-terminal, where `typed` is entered, and returns all that the
/// terminal showed.
std::string login_on_terminal(const FakeServer& server, const std::string& typed, int& code) {
  int terminal = -1;
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid == 0) {
    const std::string home = "HOME=" + server.folder().string();
    const std::string address = server.address();
    std::vector<const char*> argv = {TRAINYARD_PROGRAM, "login", "--server", address.c_str(),
                                     nullptr};
    std::vector<const char*> envp = {home.c_str(), nullptr};
    ::execve(argv[0], const_cast<char**>(argv.data()), const_cast<char**>(envp.data()));
    ::_exit(127);
  }
  std::string shown;
  std::array<char, 256> part{};
  bool entered = false;
  for (ssize_t n; (n = ::read(terminal, part.data(), part.size())) > 0;) {
    shown.append(part.data(), static_cast<size_t>(n));
    if (entered || !contains(shown, "): ")) continue;
    entered = true;
    EXPECT_EQ(::write(terminal, typed.data(), typed.size()), static_cast<ssize_t>(typed.size()));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ::close(terminal);
  return shown;
}

TEST_F(People, ATypedTokenIsNotShown) {
  int code = -1;
  const std::string shown = login_on_terminal(server_, kToken + "x\x7f\r", code);
  EXPECT_EQ(code, 0) << shown;
  EXPECT_TRUE(contains(shown, "Token for " + server_.address())) << shown;
  EXPECT_TRUE(contains(shown, "as ada")) << shown;
  EXPECT_FALSE(contains(shown, kToken.substr(0, 8))) << shown;
  EXPECT_EQ(slurp(token_file("local")), kToken + "\n") << "backspace works";
  const std::string stopped = login_on_terminal(server_, kToken.substr(0, 9) + "\x03", code);
  EXPECT_EQ(code, 130) << stopped;
}

TEST_F(People, LogoutRemovesTheTokenAndRevokesItOnRequest) {
  ASSERT_EQ(login(kToken, {"--context", "lab"}).code, 0);
  v1::Token& token = server_.state().tokens.emplace_back();
  token.set_id("t-00000000000000aa");
  token.set_name("laptop");
  Done done = run_plain({"logout", "--revoke"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(last_call(), "RevokeToken id: \"t-00000000000000aa\"");
  EXPECT_FALSE(fs::exists(token_file("lab")));
  EXPECT_TRUE(contains(slurp(config()), "context: lab"));
  EXPECT_FALSE(contains(slurp(config()), "token_file"));
  done = run_plain({"logout"});
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.err, "context lab has no token\n");
}

TEST_F(People, LogoutKeepsATokenFileThatItDidNotWrite) {
  const fs::path own = server_.folder() / "own-token";
  std::ofstream(own) << kToken << "\n";
  ASSERT_EQ(run_plain({"context", "set", "lab", "--server", server_.address(), "--token-file",
                       own.string()})
                .code,
            0);
  ASSERT_EQ(run_plain({"context", "use", "lab"}).code, 0);
  const Done done = run_plain({"logout"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(contains(done.err, "is kept")) << done.err;
  EXPECT_TRUE(fs::exists(own));
  EXPECT_FALSE(contains(slurp(config()), "own-token"));
}

TEST_F(People, ContextsAreMadeUsedShownAndRemoved) {
  EXPECT_EQ(run_plain({"context", "list"}).out, "");
  Done done =
      run_plain({"context", "set", "lab", "--server", "gpu1.example:7443", "--project", "vision"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.err, "context lab is made; 'trainyard context use lab' uses it\n");
  EXPECT_EQ(run_plain({"context", "use", "lab"}).err, "context lab is in use\n");
  done = run_plain({"context", "show"});
  EXPECT_TRUE(contains(done.out, "gpu1.example:7443  (context lab)")) << done.out;
  EXPECT_TRUE(contains(done.out, "vision  (context lab)")) << done.out;
  done = run({"context", "show", "--project", "audio"});
  EXPECT_TRUE(contains(done.out, server_.address() + "  (TRAINYARD_SERVER)")) << done.out;
  EXPECT_TRUE(contains(done.out, "audio  (--project)")) << done.out;
  EXPECT_EQ(run_plain({"context", "list", "-o", "name"}).out, "lab\n");
  done = run_plain({"context", "use", "lob"});
  EXPECT_EQ(done.code, 2);
  EXPECT_TRUE(contains(done.err, "which has lab")) << done.err;
  EXPECT_EQ(run_plain({"context", "set", "lab"}).code, 2) << "nothing to set";
  EXPECT_EQ(run_plain({"context", "set", "../x", "--project", "a"}).code, 2);
  EXPECT_EQ(run_plain({"context", "set", "lab", "--project", "No"}).code, 2);
  EXPECT_EQ(run_plain({"context", "set", "lab", "--server", "http://x"}).code, 2);
  EXPECT_TRUE(contains(slurp(config()), "server: gpu1.example:7443")) << "refusals change nothing";
  EXPECT_EQ(run_plain({"context", "remove", "lab"}).code, 2) << "asks for --yes";
  done = run_plain({"context", "remove", "lab", "--yes"});
  EXPECT_EQ(done.err, "removed context lab; no context is in use now\n");
  EXPECT_EQ(run_plain({"context", "list", "-o", "name"}).out, "");
}

TEST_F(People, AnotherServerOfAContextDoesNotGetItsToken) {
  ASSERT_EQ(login(kToken, {"--context", "lab"}).code, 0);
  const Done done = run_plain({"context", "set", "lab", "--server", "other.example:1"});
  EXPECT_EQ(done.code, 0);
  EXPECT_TRUE(contains(done.err, "its token belonged to the other server")) << done.err;
  EXPECT_FALSE(contains(slurp(config()), "token_file")) << slurp(config());
}

TEST_F(People, NamesAreOfTheProject) {
  add_job(server_.state(), "digits-1", v1::QUEUED, 0);
  {
    const std::scoped_lock lock(server_.state().mu);
    v1::Job& job = server_.state().jobs["projects/vision/jobs/photos-1"];
    job.set_name("projects/vision/jobs/photos-1");
    job.set_state(v1::QUEUED);
  }
  EXPECT_EQ(run({"get", "photos-1", "--project", "vision", "-o", "name"}).out, "photos-1\n");
  EXPECT_EQ(run({"get", "projects/vision/jobs/photos-1", "-o", "name"}).out,
            "projects/vision/jobs/photos-1\n");
  EXPECT_EQ(run({"get", "photos-1"}).code, 4);
  environment_ = {"TRAINYARD_PROJECT=vision"};
  EXPECT_EQ(run({"get", "photos-1", "-o", "name"}).out, "photos-1\n");
  const Done listed = run({"list", "-o", "name"});
  EXPECT_EQ(listed.out, "projects/default/jobs/digits-1\nphotos-1\n");
  EXPECT_EQ(server_.state().lists.back().parent(), "projects/vision");
  run({"submit", spec()});
  EXPECT_EQ(server_.state().submits.back().parent(), "projects/vision");
}

TEST_F(People, UsersAreListedSetAndRemoved) {
  Done done = run({"user", "list", "-o", "name"});
  EXPECT_EQ(done.out, "ada\nci\n") << done.err;
  EXPECT_TRUE(contains(run({"user", "list"}).out, "user, service"));
  EXPECT_EQ(run({"user", "set", "bob", "--role", "operator"}).err, "bob has the role operator\n");
  EXPECT_EQ(last_call(), "SetPerson name: \"bob\" server_role: OPERATOR");
  EXPECT_EQ(run({"user", "set", "ci", "--service"}).code, 0);
  EXPECT_EQ(last_call(), "SetPerson name: \"ci\" service: true");
  done = run({"user", "set", "bob", "--role", "king"});
  EXPECT_EQ(done.code, 2);
  EXPECT_TRUE(contains(done.err, "expected user, operator or admin")) << done.err;
  done = run({"user", "remove", "bob"});
  EXPECT_EQ(done.code, 2);
  EXPECT_TRUE(contains(done.err, "removing a user is permanent")) << done.err;
  done = run({"user", "remove", "bob", "--give-to", "ada", "--yes"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(last_call(), "RemovePerson name: \"bob\" give_to: \"ada\"");
}

TEST_F(People, ProjectsAndTheirMembers) {
  v1::Project& project = server_.state().projects.emplace_back();
  project.set_name("projects/vision");
  project.set_role(v1::MAINTAINER);
  project.set_members(2);
  const Done listed = run({"project", "list", "--project", "vision"});
  EXPECT_TRUE(contains(listed.out, "*       vision  maintainer        2  all")) << listed.out;
  EXPECT_EQ(run({"project", "list", "-o", "name"}).out, "vision\n");
  EXPECT_EQ(run({"project", "create", "speech"}).out, "speech\n");
  EXPECT_EQ(last_call(), "CreateProject project_id: \"speech\"");
  EXPECT_EQ(run({"project", "create", "Not a name"}).code, 2);
  EXPECT_EQ(run({"project", "add", "vision", "bob"}).err, "bob is now member of vision\n");
  EXPECT_EQ(last_call(), "SetMember parent: \"projects/vision\" person: \"bob\" role: MEMBER");
  EXPECT_EQ(run({"project", "remove-member", "vision", "bob"}).err, "bob is no longer in vision\n");
  EXPECT_EQ(last_call(), "SetMember parent: \"projects/vision\" person: \"bob\" role: NONE");
  EXPECT_TRUE(contains(run({"project", "members"}).out, "maintainer"));
  EXPECT_TRUE(contains(last_call(), "ListMembers parent: \"projects/default\"")) << last_call();
  EXPECT_EQ(run({"project", "devices", "vision"}).out, "jobs of vision may use: all\n");
  EXPECT_EQ(run({"project", "devices", "vision", "--only", "gpu-0", "--only", "gpu-1"}).out,
            "jobs of vision may use: gpu-0, gpu-1\n");
  EXPECT_EQ(run({"project", "devices", "vision", "--all"}).code, 0);
  EXPECT_EQ(last_call(), "SetProjectDevices name: \"projects/vision\"");
  EXPECT_EQ(run({"project", "devices", "vision", "--all", "--only", "cpu"}).code, 2);
  EXPECT_EQ(run({"project", "devices", "absent"}).code, 4);
  EXPECT_EQ(run({"project", "delete", "vision"}).code, 2) << "asks for --yes";
  EXPECT_EQ(run({"project", "delete", "vision", "--yes"}).code, 0);
  EXPECT_EQ(last_call(), "DeleteProject name: \"projects/vision\"");
}

TEST_F(People, ATokenIsPrintedOnce) {
  Done done = run({"token", "create", "laptop", "--valid", "30d"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out.substr(0, 3), "ty_");
  EXPECT_EQ(done.out.size(), 52u) << "only the token, for a pipe";
  EXPECT_TRUE(contains(done.err, "this is the only time")) << done.err;
  EXPECT_EQ(last_call(), "CreateToken name: \"laptop\" valid_seconds: 2592000");
  EXPECT_TRUE(contains(run({"token", "create", "x", "-o", "json"}).out, "\"text\": \"ty_"));
  EXPECT_EQ(run({"token", "create", "x", "--valid", "soon"}).code, 2);
  run({"token", "create", "night", "--person", "ci", "--valid", "never", "--act-for", "*"});
  EXPECT_EQ(last_call(),
            "CreateToken person: \"ci\" name: \"night\" never_expires: true may_act_for: \"*\"");
}

TEST_F(People, TokensAreNamedByNameOrId) {
  v1::Token& token = server_.state().tokens.emplace_back();
  token.set_id("t-00000000000000aa");
  token.set_name("laptop");
  token.set_person("ada");
  EXPECT_TRUE(contains(run({"token", "list"}).out, "t-00000000000000aa"));
  EXPECT_EQ(run({"token", "rotate", "laptop", "--overlap", "1h"}).code, 0);
  EXPECT_EQ(last_call(), "RotateToken id: \"t-00000000000000aa\" overlap_seconds: 3600");
  EXPECT_EQ(run({"token", "revoke", "laptop"}).code, 2) << "asks for --yes";
  EXPECT_EQ(run({"token", "revoke", "t-00000000000000bb", "--yes"}).code, 0);
  EXPECT_EQ(last_call(), "RevokeToken id: \"t-00000000000000bb\"");
  Done done = run({"token", "revoke", "phone", "--yes"});
  EXPECT_EQ(done.code, 4);
  EXPECT_TRUE(contains(done.err, "'trainyard token list'")) << done.err;
  done = run({"token", "revoke", kToken, "--yes"});
  EXPECT_EQ(done.code, 2);
  EXPECT_FALSE(contains(done.err, kToken)) << done.err;
}

TEST_F(People, SharesAreFullNames) {
  Done done = run({"share", "dataset", "digits", "--with", "speech", "--project", "vision"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(last_call(),
            "Share name: \"projects/vision/datasets/digits\" with_project: "
            "\"projects/speech\"");
  EXPECT_EQ(run({"unshare", "model", "digits-1", "--with", "speech"}).code, 0);
  EXPECT_EQ(last_call(),
            "Unshare name: \"projects/default/models/digits-1\" with_project: "
            "\"projects/speech\"");
  EXPECT_EQ(run({"share", "model", "digits-1"}).code, 2) << "--with is missing";
  done = run({"share", "list"});
  EXPECT_TRUE(contains(done.out, "projects/other/datasets/digits")) << done.out;
}

TEST_F(People, RefusalsSayWhatToDo) {
  const auto says = [&](ErrorCode code, const std::string& reason, const std::string& advice) {
    server_.state().people_error = make_error(code, reason, "no");
    const Done done = run({"project", "list"});
    EXPECT_TRUE(contains(done.err, advice)) << done.err;
  };
  says(ErrorCode::kPermissionDenied, "ROLE_REQUIRED", "an admin of the server gives roles");
  says(ErrorCode::kNotFound, "PROJECT_NOT_FOUND", "'trainyard project list'");
  says(ErrorCode::kUnauthenticated, "CREDENTIALS_MISSING", "'trainyard login'");
  says(ErrorCode::kUnauthenticated, "CREDENTIALS_INVALID", "'trainyard context show'");
  says(ErrorCode::kUnauthenticated, "CREDENTIALS_EXPIRED", "'trainyard token create NAME'");
  says(ErrorCode::kUnauthenticated, "CREDENTIALS_REVOKED", "'trainyard login'");
  says(ErrorCode::kFailedPrecondition, "PERSON_OWNS_RESOURCES", "--give-to");
  server_.state().people_error = make_error(ErrorCode::kPermissionDenied, "ROLE_REQUIRED", "no");
  server_.state().people_error.metadata["project"] = "vision";
  EXPECT_TRUE(contains(run({"project", "create", "x"}).err, "'trainyard project members vision'"));
}

TEST_F(People, OtherWordsAreUnderstood) {
  const auto says = [&](const std::vector<std::string>& words, const std::string& meant) {
    const Done done = run(words);
    EXPECT_EQ(done.code, 2);
    EXPECT_TRUE(contains(done.err, "did you mean 'trainyard " + meant)) << done.err;
  };
  says({"users"}, "user list'");
  says({"user", "delete", "bob"}, "user remove'");
  says({"user", "add", "bob"}, "user set'");
  says({"token", "rm", "x"}, "token revoke'");
  says({"context", "switch", "lab"}, "context use'");
  says({"project", "remove", "x"}, "project delete' or 'trainyard project remove-member'");
  says({"signin"}, "login'");
  says({"job", "rm", "x"}, "delete'");
  EXPECT_TRUE(contains(run({"help"}).out, "\nPeople:\n"));
}

}  // namespace
}  // namespace trainyard::client
