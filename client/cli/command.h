// client/cli/command.h: what a command is. Each lives in a file of its own and is declared and
// listed in commands.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/cli/options.h"
#include "client/cli/session.h"

namespace trainyard::cli {

struct Command {
  std::string name;     // "submit", "dataset upload"
  std::string summary;  // one line of the list of commands
  std::vector<std::string> examples;
  std::string details;  // optional: what the options do not say
  std::function<void(OptionSet&)> options;
  std::function<Result<int>(Session&)> run;  // the exit code
  bool waits = false;                        // --timeout is for the job's end, not for each answer
};

const std::vector<Command>& commands();
/// Nullptr if there is none.
const Command* find_command(const std::string& name);

/// Options that every command takes.
void add_global_options(OptionSet& options, GlobalOptions& target);

/// Examples first, then usage and options.
std::string command_help(const Command& command, const OptionSet& options);
/// All commands, one per line.
std::string general_help();

/// main() of both programs; `local` is null in trainyard.
int run_program(int argc, char** argv, const LocalWork* local);

// Commands that dataset.cc and model.cc list among theirs.
Command dataset_preview_command();
Command model_evaluate_command();
Command import_model_command();

}  // namespace trainyard::cli
