#include "tests/engine/rank_children.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace trainyard::testing {
namespace {

/// The texts as exec expects them; they must outlive the result.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

RankChild::RankChild(const RankChildren& all, int64_t index) {
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / all.program;
  std::vector<std::string> words{program.string(),
                                 std::to_string(index),
                                 std::to_string(all.count),
                                 all.dataset.string(),
                                 all.work.string(),
                                 std::to_string(all.quiet_ms),
                                 "600",
                                 name_of(all.shard)};
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
  if (all.environment) {
    if (std::string entry = all.environment(index); !entry.empty()) variables.push_back(entry);
  }
  int in[2], out[2];
  EXPECT_EQ(::pipe2(in, O_CLOEXEC) + ::pipe2(out, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  EXPECT_EQ(::posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, pointers_to(words).data(),
                          pointers_to(variables).data()),
            0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  in_.reset(in[1]);
  out_.reset(::fdopen(out[0], "r"));
}

RankChild::~RankChild() {
  kill(SIGKILL);
  if (!reaped_) ::waitpid(pid_, nullptr, 0);
}

void RankChild::write(const std::string& text) {
  EXPECT_EQ(::write(in_.get(), text.data(), text.size()), std::ssize(text));
}

std::string RankChild::line(const std::string& begin) {
  char text[512];
  while (std::fgets(text, sizeof text, out_.get()) != nullptr) {
    std::string line(text);
    while (!line.empty() && line.back() == '\n') line.pop_back();
    if (line.starts_with(begin)) return line;
  }
  return "";
}

void RankChild::kill(int signal) const { (void)::kill(pid_, signal); }

int RankChild::wait() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  reaped_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::vector<std::unique_ptr<RankChild>> start_rank_children(const RankChildren& all) {
  std::vector<std::unique_ptr<RankChild>> children;
  for (int64_t p = 0; p < all.count; ++p) children.push_back(std::make_unique<RankChild>(all, p));
  std::string ports;
  for (auto& child : children) ports += child->line("port ").substr(5) + "\n";
  for (auto& child : children) child->write(ports);
  return children;
}

}  // namespace trainyard::testing
