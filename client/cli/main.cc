// trainyard: the command line. commands.cc finds the command, its file runs it.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "client/cli/command.h"

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);  // `trainyard list | head -1` must not crash: writes fail instead
  const auto environment = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  try {
    return trainyard::cli::run_command_line({argv + 1, argv + argc}, environment);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "trainyard: %s [INTERNAL]\n", e.what());
    return trainyard::client::kExitFailed;
  }
}
