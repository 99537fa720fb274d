// client/cli/command.h: what a command is. Each lives in a file of its own and is listed in
// commands.cc.
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
  std::string details;  // optional: what the options cannot say
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
/// All commands in a line each.
std::string general_help();

/// What main() does, with the program's name already taken off.
int run_command_line(const std::vector<std::string>& arguments, const client::Environment& env);

Command submit_command();
Command plan_command();
Command list_command();
Command get_command();
Command watch_command();
Command wait_command();
Command logs_command();
Command cancel_command();
Command delete_command();
Command metrics_export_command();
Command plot_command();
Command predict_command();
Command generate_command();
Command local_run_command();
Command local_export_command();
Command local_check_command();
std::vector<Command> dataset_commands();
std::vector<Command> model_commands();
Command model_evaluate_command();
Command dataset_preview_command();
Command import_model_command();  // one of them
Command device_list_command();
Command daemon_status_command();
Command health_command();
Command completion_command();
Command version_command();

}  // namespace trainyard::cli
