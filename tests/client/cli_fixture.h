// tests/client/cli_fixture.h: runs the real program against the fake server.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/client/fake_server.h"

namespace trainyard::client {

struct Done {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class Cli : public ::testing::Test {
 protected:
  /// Starts `trainyard arguments...` with stdout and stderr in files and stdin from `input`.
  pid_t start(const std::vector<std::string>& arguments, const std::string& input = "") {
    std::ofstream(server_.folder() / "in", std::ios::binary) << input;
    std::vector<std::string> words = {program_};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::vector<std::string> variables = environment_;  // of two values, the first counts
    for (const std::string& usual :
         {"TRAINYARD_SERVER=" + server_.address(), "HOME=" + server_.folder().string(),
          std::string("TZ=UTC"), std::string("PATH=/usr/bin:/bin")}) {
      variables.push_back(usual);
    }
    std::vector<char*> envp;
    for (std::string& variable : variables) envp.push_back(variable.data());
    envp.push_back(nullptr);
    const std::string in = server_.folder() / "in";
    const std::string out = server_.folder() / "out";
    const std::string err = server_.folder() / "err";
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::dup2(::open(in.c_str(), O_RDONLY), 0);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  Done finish(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    Done done;
    done.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    done.out = slurp(server_.folder() / "out");
    done.err = slurp(server_.folder() / "err");
    return done;
  }
  Done run(const std::vector<std::string>& arguments, const std::string& input = "") {
    return finish(start(arguments, input));
  }
  std::string spec(const std::string& text =
                       "name: digits-1\ndataset: {name: digits}\nmodel: {lenet5: }\n"
                       "recipe: {epochs: 1, optimizer: {learning_rate: 0.1}}\n") {
    const std::filesystem::path path = server_.folder() / "job.yaml";
    std::ofstream(path) << text;
    return path;
  }
  /// From here on the test runs a copy of the program from another folder.
  void move_away() {
    program_ = server_.folder() / "bin/trainyard";
    std::filesystem::create_directory(std::filesystem::path(program_).parent_path());
    std::filesystem::copy_file(TRAINYARD_PROGRAM, program_);
  }
  FakeServer server_;
  std::vector<std::string> environment_;
  std::string program_ = TRAINYARD_PROGRAM;
};

}  // namespace trainyard::client
