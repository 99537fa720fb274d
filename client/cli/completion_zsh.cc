// zsh's completion script: one call of _arguments for each command, with the help of each option.
#include "client/cli/completion_table.h"

namespace trainyard::cli {
namespace {

/// Returns the text in zsh's single quotes. The `special` characters, which _arguments and
/// _describe interpret, are escaped with a backslash.
std::string quoted(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (special.find(c) != std::string::npos || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// Returns the part ":MESSAGE:ACTION" of an _arguments spec that completes a value. An action that
/// begins with a space is called only with its own arguments.
std::string action(const OptionRow& row) {
  using With = Completion::With;
  const Completion completion = completion_of(row);
  const std::string message = ":" + quoted(row.positional ? row.names[0] : row.value, ":[]") + ":";
  switch (completion.with) {
    case With::kNothing:
      return message + " ";
    case With::kWords:
      return message + "(" + spaced(completion.words) + ")";
    case With::kFiles:
      return message + "_files";
    case With::kFolders:
      return message + "_files -/";
    default:
      return message + " _trainyard_names " + listing_of(completion.with);
  }
}

std::string option_specs(const std::vector<OptionRow>& rows) {
  std::string out;
  for (const OptionRow& row : rows) {
    if (row.positional) continue;
    for (const std::string& name : row.names) {
      const std::string value = row.value.empty() ? "" : name.starts_with("--") ? "=" : "+";
      out += " \\\n      '*" + name + value + "[" + quoted(row.help, "[]:") + "]" +
             (row.value.empty() ? "" : action(row)) + "'";
    }
  }
  return out;
}

std::string command_specs(const Command& command) {
  std::string out =
      "  '" + command.name + "')\n    _arguments -S $every" + option_specs(rows_of(command).own);
  std::string last;
  for (const OptionRow& row : rows_of(command).own) {
    if (!row.positional) continue;
    if (!last.empty()) out += " \\\n      '" + last + "'";
    last = action(row);
  }
  if (!last.empty()) out += " \\\n      '*" + last + "'";  // the last argument may be repeated
  return out + "\n    ;;\n";
}

std::string described(const std::string& word, const std::string& summary) {
  return "    '" + word + ":" + quoted(summary, ":") + "'\n";
}

}  // namespace

std::string zsh_completion() {
  std::string words, verbs;
  for (const FirstWord& first : first_words()) {
    words += described(first.word, first.summary);
    if (first.verbs.empty()) continue;
    verbs += "  " + first.word + ")\n    verbs=(\n";
    for (const std::string& verb : first.verbs) {
      verbs += "  " + described(verb, find_command(first.word + " " + verb)->summary);
    }
    verbs += "    )\n    ;;\n";
  }
  std::string cases;
  for (const Command& c : commands()) cases += command_specs(c);
  const std::string frame = R"sh(#compdef trainyard
# zsh completion of trainyard:  source <(trainyard completion zsh)
_trainyard_names() {
  local -a names
  names=(${(f)"$($trainyard "$@" -o name 2>/dev/null)"})
  compadd -a names
}
_trainyard() {
  local trainyard=${(Q)words[1]} command=$words[2]
  local -a first verbs every
  first=(
@WORDS@  )
  if ((CURRENT == 2)) || [[ $command == help && CURRENT -eq 3 ]]; then
    _describe -t commands command first
    return
  fi
  case $command in
@VERBS@  esac
  shift words
  ((--CURRENT))
  if ((${#verbs})); then
    if ((CURRENT == 2)); then
      _describe -t commands command verbs
      return
    fi
    command+=" $words[2]"
    shift words
    ((--CURRENT))
  fi
  every=(@EVERY@)
  case $command in
@COMMANDS@  esac
}
if [[ $funcstack[1] == _trainyard ]]; then
  _trainyard "$@"
else
  (($+functions[compdef])) || { autoload -Uz compinit && compinit; }
  compdef _trainyard trainyard
fi
)sh";
  return filled(frame, {{"@WORDS@", words},
                        {"@VERBS@", verbs},
                        {"@EVERY@", option_specs(rows_of(commands().front()).global)},
                        {"@COMMANDS@", cases}});
}

}  // namespace trainyard::cli
