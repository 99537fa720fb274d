// client/cli/command.h: the description of a command. Each command is implemented in its own file,
// and declared and listed in commands.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/cli/options.h"
#include "client/cli/session.h"

namespace trainyard::cli {

struct Command {
  std::string name;     // "submit", "dataset upload"
  std::string summary;  // its line in the list of commands
  std::vector<std::string> examples;
  std::string details;  // optional: explanations beyond the options' help
  std::function<void(OptionSet&)> options;
  std::function<Result<int>(Session&)> run;  // returns the exit code
  bool waits = false;  // --timeout limits the wait for the job's end instead of each call
};

const std::vector<Command>& commands();
/// Returns nullptr if there is no such command.
const Command* find_command(const std::string& name);

/// Adds the options that every command has.
void add_global_options(OptionSet& options, GlobalOptions& target);

/// Implements main() of both programs; `local` is null in trainyard, and set in trainyard-local.
int run_program(int argc, char** argv, const LocalWork* local);

// Commands that dataset.cc and model.cc include in their lists.
Command dataset_preview_command();
Command model_evaluate_command();
Command import_model_command();

}  // namespace trainyard::cli
