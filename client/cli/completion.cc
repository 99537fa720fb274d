// trainyard completion bash|zsh|fish: scripts generated from the list of commands, so that they
// cannot become outdated.
#include <memory>
#include <set>

#include "client/cli/command.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

std::vector<OptionRow> rows_of(const Command& command) {
  OptionSet options;
  command.options(options);
  GlobalOptions global;
  add_global_options(options, global);
  return options.rows();
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

std::string option_words(const Command& command) {
  std::vector<std::string> words;
  for (const OptionRow& row : rows_of(command)) {
    if (!row.positional) words.push_back(row.names.back());
  }
  return joined(words);
}

/// What completes a command's first positional argument: "jobs", "models", "datasets", "devices",
/// "files" or "".
std::string completed_with(const Command& command) {
  for (const OptionRow& row : rows_of(command)) {
    if (!row.positional) continue;
    if (row.names[0] == "JOB") return "jobs";
    if (row.names[0] == "MODEL") return "models";
    if (row.names[0] == "DATASET") return "datasets";
    if (row.names[0] == "DEVICE") return "devices";
    if (row.names[0] == "SHELL") return "shells";
    return "files";
  }
  return "";
}

std::string groups_case() {
  std::string out;
  std::set<std::string> seen;
  for (const Command& c : commands()) {
    const size_t space = c.name.find(' ');
    if (space == std::string::npos || !seen.insert(c.name.substr(0, space)).second) continue;
    std::vector<std::string> verbs;
    for (const Command& other : commands()) {
      if (other.name.starts_with(c.name.substr(0, space + 1)))
        verbs.push_back(other.name.substr(space + 1));
    }
    out += "    " + c.name.substr(0, space) + ") COMPREPLY=($(compgen -W \"" + joined(verbs) +
           "\" -- \"$cur\")) ;;\n";
  }
  return out;
}

std::string first_words() {
  std::vector<std::string> words = {"help"};
  std::set<std::string> seen;
  for (const Command& c : commands()) {
    const std::string word = c.name.substr(0, c.name.find(' '));
    if (seen.insert(word).second) words.push_back(word);
  }
  return joined(words);
}

std::string bash_script() {
  std::string out =
      "# bash completion of trainyard:  source <(trainyard completion bash)\n"
      "_trainyard_names() { COMPREPLY=($(compgen -W \"$(trainyard \"$@\" -o name 2>/dev/null)\" -- "
      "\"$cur\")); }\n"
      "_trainyard() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
      "command=${COMP_WORDS[1]}\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    COMPREPLY=($(compgen -W \"" +
      first_words() +
      "\" -- \"$cur\"))\n"
      "    return\n"
      "  fi\n"
      "  if ((COMP_CWORD == 2)); then\n"
      "    case $command in\n" +
      groups_case() +
      "    esac\n"
      "    ((${#COMPREPLY[@]})) && return\n"
      "  fi\n"
      "  case $command in dataset|model|device|daemon|local) command=\"$command ${COMP_WORDS[2]}\" "
      ";; esac\n"
      "  case $prev in -o|--output) COMPREPLY=($(compgen -W \"" +
      joined(format_names()) +
      "\" -- \"$cur\")); return ;; esac\n"
      "  if [[ $cur == -* ]]; then\n"
      "    case $command in\n";
  for (const Command& c : commands()) {
    out += "    \"" + c.name + "\") COMPREPLY=($(compgen -W \"" + option_words(c) +
           "\" -- \"$cur\")) ;;\n";
  }
  out += "    esac\n    return\n  fi\n  case $command in\n";
  for (const Command& c : commands()) {
    const std::string kind = completed_with(c);
    if (kind == "jobs") out += "  \"" + c.name + "\") _trainyard_names list ;;\n";
    if (kind == "models") out += "  \"" + c.name + "\") _trainyard_names model list ;;\n";
    if (kind == "datasets") out += "  \"" + c.name + "\") _trainyard_names dataset list ;;\n";
    if (kind == "devices") out += "  \"" + c.name + "\") _trainyard_names device list ;;\n";
    if (kind == "shells") {
      out += "  \"" + c.name + "\") COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$cur\")) ;;\n";
    }
  }
  return out + "  esac\n}\ncomplete -o default -F _trainyard trainyard\n";
}

std::string zsh_script() {
  return "#compdef trainyard\n# zsh completion of trainyard:  source <(trainyard completion zsh)\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash_script();
}

std::string fish_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("\\'") : std::string(1, c);
  return out + "'";
}

std::string fish_script() {
  std::string out =
      "# fish completion of trainyard:  trainyard completion fish | source\ncomplete -c trainyard "
      "-f\n";
  for (const Command& c : commands()) {
    const size_t space = c.name.find(' ');
    const std::string first = c.name.substr(0, space);
    std::string seen = "__fish_seen_subcommand_from " + first;
    if (space == std::string::npos) {
      out += "complete -c trainyard -n __fish_use_subcommand -a " + first + " -d " +
             fish_quoted(c.summary) + "\n";
    } else {
      const std::string verb = c.name.substr(space + 1);
      out += "complete -c trainyard -n __fish_use_subcommand -a " + first + "\n";
      out += "complete -c trainyard -n " +
             fish_quoted(seen + "; and not __fish_seen_subcommand_from " + verb) + " -a " + verb +
             " -d " + fish_quoted(c.summary) + "\n";
      seen += "; and __fish_seen_subcommand_from " + verb;
    }
    for (const OptionRow& row : rows_of(c)) {
      if (row.positional) continue;
      out += "complete -c trainyard -n " + fish_quoted(seen) + " -l " + row.names.back().substr(2);
      if (row.names.size() > 1) out += " -s " + row.names[0].substr(1);
      if (!row.value.empty())
        out += row.choices.empty() ? " -r -F" : " -x -a " + fish_quoted(joined(row.choices));
      out += " -d " + fish_quoted(row.help) + "\n";
    }
    const std::string kind = completed_with(c);
    const std::string when = "complete -c trainyard -n " + fish_quoted(seen);
    if (kind == "jobs") out += when + " -a '(trainyard list -o name 2>/dev/null)'\n";
    if (kind == "models") out += when + " -a '(trainyard model list -o name 2>/dev/null)'\n";
    if (kind == "datasets") out += when + " -a '(trainyard dataset list -o name 2>/dev/null)'\n";
    if (kind == "devices") out += when + " -a '(trainyard device list -o name 2>/dev/null)'\n";
    if (kind == "shells") out += when + " -a 'bash zsh fish'\n";
    if (kind == "files") out += when + " -F\n";
  }
  return out;
}

}  // namespace

Command completion_command() {
  auto shell = std::make_shared<std::string>();
  return {
      "completion",
      "Print a completion script for bash, zsh or fish",
      {"source <(trainyard completion bash)", "source <(trainyard completion zsh)",
       "trainyard completion fish | source"},
      "",
      [shell](OptionSet& options) { options.positional("SHELL", *shell, "bash, zsh or fish"); },
      [shell](Session& session) -> Result<int> {
        if (*shell == "bash") {
          session.out().write(bash_script());
        } else if (*shell == "zsh") {
          session.out().write(zsh_script());
        } else if (*shell == "fish") {
          session.out().write(fish_script());
        } else {
          return usage_error(quoted_value(*shell) + " is not known, expected bash, zsh or fish");
        }
        return static_cast<int>(client::kExitOk);
      }};
}

}  // namespace trainyard::cli
