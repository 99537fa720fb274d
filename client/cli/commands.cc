#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "client/cli/command.h"
#include "client/cli/did_you_mean.h"
#include "client/cli/help.h"
#include "client/cli/local_program.h"
#include "src/base/text.h"

namespace trainyard::cli {

// Each command is implemented in its own file. commands() lists them in the order of the help.
Command init_command();
Command submit_command();
Command plan_command();
Command list_command();
Command queue_command();
Command get_command();
Command watch_command();
Command wait_command();
Command logs_command();
Command explain_command();
Command cancel_command();
Command pause_command();
Command resume_command();
Command retry_command();
Command fork_command();
Command checkpoint_list_command();
Command prioritize_command();
Command delete_command();
Command metrics_export_command();
Command plot_command();
Command predict_command();
Command generate_command();
Command chat_command();
std::vector<Command> local_commands();
std::vector<Command> array_commands();
std::vector<Command> dataset_commands();
std::vector<Command> model_commands();
std::vector<Command> device_commands();
Command login_command();
Command logout_command();
Command whoami_command();
std::vector<Command> context_commands();
std::vector<Command> user_commands();
std::vector<Command> project_commands();
std::vector<Command> token_commands();
std::vector<Command> share_commands();
Command server_status_command();
Command server_backup_command();
Command server_restore_command();
Command server_gc_command();
Command server_audit_command();
Command usage_command();
std::vector<Command> quota_commands();
Command health_command();
Command completion_command();
Command man_command();
Command tutorial_command();
Command version_command();

namespace {

/// The words of the command in `arguments`, which are neither options nor values of global options,
/// and their positions.
struct Words {
  std::vector<std::string> words;
  std::vector<size_t> at;
};
Words leading_words(const std::vector<std::string>& arguments) {
  static const std::vector<std::string> with_value = {"-o",           "--output",  "--server",
                                                      "--context",    "--project", "--timeout",
                                                      "--token-file", "--ca-file", "--config"};
  Words out;
  for (size_t i = 0; i < arguments.size() && out.words.size() < 2; ++i) {
    const std::string& a = arguments[i];
    if (std::find(with_value.begin(), with_value.end(), a) != with_value.end()) {
      ++i;
    } else if (a.empty() || a[0] != '-') {
      out.words.push_back(a);
      out.at.push_back(i);
    }
  }
  return out;
}

int run_found(const Command& command, std::vector<std::string> arguments, bool help,
              const Program& program) {
  OptionSet options;
  command.options(options);
  GlobalOptions global;
  add_global_options(options, global);
  if (!help) {
    help = std::find(arguments.begin(), arguments.end(), "--help") != arguments.end() ||
           std::find(arguments.begin(), arguments.end(), "-h") != arguments.end();
  }
  Terminal err(stderr, false, program.env);
  if (help) {
    Terminal out(stdout, false, program.env);
    out.write(command_help(command, options, help_width(out)));
    return client::kExitOk;
  }
  if (const Status parsed = options.parse(std::move(arguments)); !parsed.ok()) {
    const int code = report_error(parsed.error(), err,
                                  find_format(global.output).value_or(Format::kTable), false);
    err.line("'trainyard " + command.name + " --help' shows its usage");
    return code;
  }
  if (command.waits) std::swap(global.wait_s, global.connection.timeout_s);
  const auto session = Session::open(global, program);
  if (!session.ok()) return report_error(session.error(), err, Format::kTable, false);
  if ((*session)->format() == Format::kCsv && command.name != "predict" &&
      command.name != "usage") {
    return report_error(
        usage_error("--output: only 'trainyard predict' and 'trainyard usage' write csv"), err,
        Format::kTable, false);
  }
  const Result<int> code = command.run(**session);
  if (code.ok()) return *code;
  return report_error(code.error(), (*session)->err(), (*session)->format(), global.verbose);
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> all = [] {
    std::vector<Command> list = {init_command(),
                                 submit_command(),
                                 plan_command(),
                                 list_command(),
                                 queue_command(),
                                 get_command(),
                                 watch_command(),
                                 wait_command(),
                                 logs_command(),
                                 explain_command(),
                                 pause_command(),
                                 resume_command(),
                                 cancel_command(),
                                 retry_command(),
                                 fork_command(),
                                 checkpoint_list_command(),
                                 prioritize_command(),
                                 delete_command(),
                                 metrics_export_command(),
                                 plot_command(),
                                 predict_command(),
                                 generate_command(),
                                 chat_command()};
    for (Command& c : local_commands()) list.push_back(std::move(c));
    for (Command& c : array_commands()) list.push_back(std::move(c));
    for (Command& c : dataset_commands()) list.push_back(std::move(c));
    for (Command& c : model_commands()) list.push_back(std::move(c));
    for (Command& c : device_commands()) list.push_back(std::move(c));
    list.push_back(server_status_command());
    list.push_back(server_backup_command());
    list.push_back(server_restore_command());
    list.push_back(server_gc_command());
    list.push_back(server_audit_command());
    list.push_back(usage_command());
    for (Command& c : quota_commands()) list.push_back(std::move(c));
    list.push_back(health_command());
    list.push_back(login_command());
    list.push_back(logout_command());
    list.push_back(whoami_command());
    for (auto* group :
         {context_commands, user_commands, project_commands, token_commands, share_commands}) {
      for (Command& c : group()) list.push_back(std::move(c));
    }
    list.push_back(completion_command());
    list.push_back(man_command());
    list.push_back(tutorial_command());
    list.push_back(version_command());
    return list;
  }();
  return all;
}

const Command* find_command(const std::string& name) {
  for (const Command& command : commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

void add_global_options(OptionSet& options, GlobalOptions& g) {
  options.group("");
  options.text("-o,--output", "FORMAT", g.output,
               "table, wide, json, yaml, name, jsonl; predict: csv (TRAINYARD_OUTPUT)",
               format_names());
  options.text("--server", "ADDRESS", g.connection.server,
               "unix:/path or host:port (TRAINYARD_SERVER)");
  options.text("--context", "CONTEXT", g.connection.context,
               "a server named in the configuration file (TRAINYARD_CONTEXT)");
  options.text("--project", "PROJECT", g.connection.project,
               "the project of names without one (TRAINYARD_PROJECT)");
  options.text("--config", "FILE", g.connection.config_file,
               "configuration file (TRAINYARD_CONFIG)");
  options.text("--token-file", "FILE", g.connection.token_file,
               "file with your token, mode 0600 (TRAINYARD_TOKEN_FILE)");
  options.text("--ca-file", "FILE", g.connection.ca_file,
               "CA certificates (PEM) to trust for the server's certificate");
  options.flag("--plaintext", g.connection.plaintext,
               "use TCP without TLS, even to another machine");
  options.number("--timeout", "SECONDS", g.connection.timeout_s,
                 "limit for each reply, default 10; wait, submit: until the job ends");
  options.flag("--no-color", g.no_colour, "no color (NO_COLOR, TRAINYARD_NO_COLOR)");
  options.flag("-v,--verbose", g.verbose, "show details of errors");
  options.flag("-h,--help", g.help, "show this text");
}

namespace {

int run_command_line(const Program& program) {
  Terminal out(stdout, false, program.env);
  Terminal err(stderr, false, program.env);
  std::vector<std::string> rest = program.arguments;
  const bool ask_help = !rest.empty() && rest[0] == "help";
  if (ask_help) rest.erase(rest.begin());
  if (rest.size() == 1 && rest[0] == "--version") rest[0] = "version";
  const Words found = leading_words(rest);
  if (found.words.empty()) {
    const bool help = ask_help || std::find(rest.begin(), rest.end(), "--help") != rest.end() ||
                      std::find(rest.begin(), rest.end(), "-h") != rest.end();
    if (help || rest.empty()) {
      out.write(general_help(help_width(out)));
      return client::kExitOk;
    }
    return report_error(usage_error("no command given; 'trainyard help' lists them"), err,
                        Format::kTable, false);
  }
  const std::string& first = found.words[0];
  if (ask_help && first == "options") {
    out.write(global_options_help(help_width(out)));
    return client::kExitOk;
  }
  if (const Command* command = find_command(first)) {
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(found.at[0]));
    return run_found(*command, std::move(rest), ask_help, program);
  }
  if (is_group(first)) {
    if (found.words.size() < 2) {
      const bool help = ask_help || rest.size() > 1;
      Terminal& to = help ? out : err;
      to.write(group_help(first, help_width(to)));
      return help ? client::kExitOk : client::kExitUsage;
    }
    if (const Command* command = find_command(first + " " + found.words[1])) {
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(found.at[1]));
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(found.at[0]));
      return run_found(*command, std::move(rest), ask_help, program);
    }
  }
  return report_error(unknown_command(found.words), err, Format::kTable, false);
}

}  // namespace

int run_program(int argc, char** argv, const LocalWork* local) {
  // writing to a closed pipe (`trainyard list | head -1`) then fails with EPIPE instead of ending
  // the process
  ::signal(SIGPIPE, SIG_IGN);
  const Program program = {{argv + 1, argv + argc},
                           [](const char* name) -> std::string {
                             const char* value = std::getenv(name);
                             return value == nullptr ? "" : value;
                           },
                           local};
  if (const Status checked = check_caller(program.env); local != nullptr && !checked.ok()) {
    Terminal err(stderr, false, program.env);
    return report_error(checked.error(), err, Format::kTable, false);
  }
  try {
    return run_command_line(program);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "trainyard: %s [INTERNAL]\n", e.what());
    return client::kExitFailed;
  }
}

}  // namespace trainyard::cli
