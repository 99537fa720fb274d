// trainyard completion bash|zsh|fish: prints completion scripts generated from the list of
// commands, so that they cannot become outdated. The scripts request names from the server at the
// time of completion.
#include <map>
#include <memory>

#include "client/cli/completion_table.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

/// Returns the arguments of the script's function _trainyard_fill for completing this option's
/// value.
std::string bash_kind(const OptionRow& row) {
  using With = Completion::With;
  const Completion completion = completion_of(row);
  switch (completion.with) {
    case With::kNothing:
      return "nothing";
    case With::kWords:
      return "words " + spaced(completion.words);
    case With::kFiles:
      return "files";
    case With::kFolders:
      return "folders";
    default:
      return "names " + listing_of(completion.with);
  }
}

/// Returns the names of all options, or only of those that take a value.
std::string bash_options(const std::vector<OptionRow>& rows, bool with_value_only) {
  std::vector<std::string> names;
  for (const OptionRow& row : rows) {
    if (row.positional || (with_value_only && row.value.empty())) continue;
    names.insert(names.end(), row.names.begin(), row.names.end());
  }
  return spaced(names);
}

/// Returns the branches of the script's `case $option`, each of which completes one option's value.
std::string bash_values(const std::vector<OptionRow>& rows, const std::string& indent) {
  std::string out;
  for (const OptionRow& row : rows) {
    if (row.value.empty()) continue;
    out +=
        indent + spaced(row.names, "|") + ") _trainyard_fill " + bash_kind(row) + "; return ;;\n";
  }
  return out;
}

std::string bash_command(const Command& command) {
  const CommandRows rows = rows_of(command);
  std::string out = "  '" + command.name + "')\n    options='" + bash_options(rows.own, false) +
                    "'\n    valued+=' " + bash_options(rows.own, true) + " '\n";
  if (const std::string values = bash_values(rows.own, "      "); !values.empty()) {
    out += "    case $option in\n" + values + "    esac\n";
  }
  std::string arguments;
  for (const OptionRow& row : rows.own) {
    if (row.positional) arguments += (arguments.empty() ? "'" : " '") + bash_kind(row) + "'";
  }
  if (!arguments.empty()) out += "    arguments=(" + arguments + ")\n";
  return out + "    ;;\n";
}

}  // namespace

std::string bash_completion() {
  std::vector<std::string> words;
  std::string verbs, groups;
  for (const FirstWord& first : first_words()) {
    words.push_back(first.word);
    if (first.verbs.empty()) continue;
    groups += (groups.empty() ? "" : "|") + first.word;
    verbs += "    " + first.word + ") _trainyard_fill words " + spaced(first.verbs) + " ;;\n";
  }
  const CommandRows any = rows_of(commands().front());
  const std::string frame =
      R"sh(# bash completion of trainyard:  source <(trainyard completion bash)
_trainyard_fill() {  # KIND [WORD...]: sets COMPREPLY
  local kind=$1
  shift
  case $kind in
  words) mapfile -t COMPREPLY < <(compgen -W "$*" -- "$cur") ;;
  names) mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" "$@" -o name 2>/dev/null)" -- "$cur") ;;
  files)
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    ;;
  folders)
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$cur")
    ;;
  esac
}
_trainyard() {
  local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
  local valued=' @VALUED@ ' options= first=2 at=0 i
  local -a arguments=()
  COMPREPLY=()
  # bash takes --option=value as three words.
  if [[ $option == = ]]; then option=${COMP_WORDS[COMP_CWORD-2]}; fi
  if [[ $cur == = ]]; then cur=; fi
  if ((COMP_CWORD == 1)) || [[ $command == help && $COMP_CWORD == 2 ]]; then
    _trainyard_fill words @WORDS@
    return
  fi
  case $command in
  @GROUPS@)
    if ((COMP_CWORD == 2)); then
      case $command in
@VERBS@      esac
      return
    fi
    command+=" ${COMP_WORDS[2]}"
    first=3
    ;;
  esac
  case $option in
@VALUES@  esac
  case $command in
@COMMANDS@  *) return ;;
  esac
  if [[ $cur == -* ]]; then
    _trainyard_fill words "$options" @EVERY@
    return
  fi
  for ((i = first; i < COMP_CWORD; ++i)); do
    [[ ${COMP_WORDS[i]} != -* && $valued != *" ${COMP_WORDS[i-1]} "* ]] && ((++at))
  done
  # The last argument may be given several times.
  ((at >= ${#arguments[@]})) && at=$((${#arguments[@]} - 1))
  ((at >= 0)) && _trainyard_fill ${arguments[at]}
}
complete -F _trainyard trainyard
)sh";
  std::string cases;
  for (const Command& c : commands()) cases += bash_command(c);
  return filled(frame, {{"@VALUED@", bash_options(any.global, true)},
                        {"@WORDS@", spaced(words)},
                        {"@GROUPS@", groups},
                        {"@VERBS@", verbs},
                        {"@VALUES@", bash_values(any.global, "  ")},
                        {"@COMMANDS@", cases},
                        {"@EVERY@", bash_options(any.global, false)}});
}

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
        static const std::map<std::string, std::string (*)()> scripts = {
            {"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};
        const auto script = scripts.find(*shell);
        if (script == scripts.end()) {
          return usage_error(quoted_value(*shell) + " is not known, expected bash, zsh or fish");
        }
        session.out().write(script->second());
        return static_cast<int>(client::kExitOk);
      }};
}

}  // namespace trainyard::cli
